"""Reads one object with the HttpClient of the JDK: a range from each nginx, all at once. RangeReader.java reads a block for
each line that it receives."""

import pathlib
import subprocess

import load

_PROGRAM = pathlib.Path(__file__).with_name("RangeReader.java")


def main():
    flags = load.parse_flags(__doc__)
    argv = ["java", str(_PROGRAM), str(flags.data), *flags.workers]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as java:

        def read_block():
            java.stdin.write("\n")
            java.stdin.flush()
            return int(java.stdout.readline() or 0) or fail(java)

        load.measure(flags, read_block)
        java.stdin.close()


def fail(java):
    raise RuntimeError(f"{_PROGRAM.name} ended with {java.wait()}")


if __name__ == "__main__":
    main()

"""Reads one object with curl: a range from each nginx, all at once. Each block is a process of its own, with new
connections."""

import pathlib
import subprocess
import tempfile

import load


def main():
    flags = load.parse_flags(__doc__)
    parts = load.parts_of_object(flags)
    with tempfile.TemporaryDirectory(dir=flags.data) as folder:
        files = [pathlib.Path(folder, str(i)) for i in range(len(parts))]
        config = pathlib.Path(folder, "config")
        config.write_text("next\n".join(_request(flags, i, len(part), files[i]) for i, part in enumerate(parts)))
        argv = ["curl", "--parallel", "--parallel-immediate", "--parallel-max", str(len(parts)), "--config", str(config)]

        def read_block():
            subprocess.run(argv, check=True)
            load.check_parts(parts, [file.read_bytes() for file in files])
            for file in files:
                file.unlink()  # the next block must write it
            return sum(map(len, parts))

        load.measure(flags, read_block)


def _request(flags, i, size, file):
    return (
        f'url = "https://{flags.workers[i]}/object"\nrange = "{i * size}-{(i + 1) * size - 1}"\noutput = "{file}"\n'
        f'cacert = "{flags.data}/cert.pem"\nfail\nsilent\nshow-error\n'
    )


if __name__ == "__main__":
    main()

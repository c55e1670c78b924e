"""Programs in hosts of the test network: starts them, waits until they serve, and ends them with SIGTERM."""

import pathlib
import signal
import subprocess
import time

_READY_S = 60
_STOP_S = 20


class Program:
    """One running program. Its log is a file, and errors about the program quote it. With `gives_way` the program
    runs only when a CPU is otherwise idle."""

    def __init__(self, network, host, argv, log, gives_way=False):
        self.name = f"{pathlib.Path(argv[0]).name} in {host}"
        self._log = log
        self._output = open(log, "wb")
        scheduling = ["chrt", "--idle", "0"] if gives_way else []
        # `ip netns exec` and `chrt` replace themselves with the program, so this process is the program.
        self._process = subprocess.Popen(
            network.command(host, [*scheduling, *(str(word) for word in argv)]),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def __enter__(self):
        return self

    def __exit__(self, error_type, *_):
        if error_type is None:
            self.stop()
        else:
            self._process.kill()
            self._process.wait()
        self._output.close()

    @property
    def pid(self):
        return self._process.pid

    def wait_until_ready(self, ready_file):
        wait_until(ready_file.exists, _READY_S, f"{self.name} to serve", [self])

    def log(self):
        return self._log.read_text(errors="replace")

    def check(self):
        if self._process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self._process.returncode}:\n{self._log_tail()}")

    def kill(self):
        """Kills the program at once, or does nothing if it has ended."""
        self._process.kill()
        self._process.wait()
        self._output.close()

    def send_signal(self, signum):
        self._process.send_signal(signum)

    def stop(self):
        """Sends SIGTERM, which must end the program with exit code 0."""
        self.check()
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise RuntimeError(f"{self.name} did not end within {_STOP_S} s of SIGTERM:\n{self._log_tail()}") from None
        if code != 0:
            raise RuntimeError(f"{self.name} ended with {code} on SIGTERM:\n{self._log_tail()}")

    def _log_tail(self):
        return "\n".join(self.log().splitlines()[-20:])


def wait_until(condition, timeout_s, what, programs=()):
    deadline = time.monotonic() + timeout_s
    while not condition():
        for program in programs:
            program.check()
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {timeout_s} s for {what}")
        time.sleep(0.01)


def run_to_end(argv, what, allowed=(0,)):
    """Returns the program's stdout. Raises RuntimeError for an exit code that is not allowed."""
    result = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    if result.returncode not in allowed:
        raise RuntimeError(f"{what} failed with {result.returncode}: {(result.stderr or result.stdout).strip()[-2000:]}")
    return result.stdout

"""Programs that tests of the proxy run together with stock Python clients."""

import contextlib
import subprocess
import time

PATIENCE_S = 30

# A call of the worker below: an AnswerRequest with a response_bytes of 20000.
METHOD = "/sluice.testbed.v1.Answers/Answer"
REQUEST = b"\x08\xa0\x9c\x01"


@contextlib.contextmanager
def started(argv, ready, **options):
    """Yields a program and its addresses, and kills the program at the end if it still runs. The options are Popen's."""
    ready.unlink(missing_ok=True)
    with subprocess.Popen([str(word) for word in argv], **options) as process:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"{argv[0]} does not serve")
                time.sleep(0.01)
            yield process, ready.read_text().split()
        finally:
            process.kill()


@contextlib.contextmanager
def worker(build, folder):
    """Yields the address of a server of answers.proto."""
    ready = folder / "worker"
    with started([build / "tests/answer_server", ready, "127.0.0.1:0"], ready) as (_, (address,)):
        yield address

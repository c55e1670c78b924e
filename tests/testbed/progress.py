"""A progress line on a terminal, redrawn in place."""

import time


class Progress:
    def __init__(self, stream, enabled=True):
        self._stream = stream
        self._enabled = enabled
        self._live = enabled and stream.isatty()
        self._next_draw_s = 0.0

    def step(self, text):
        """Starts a stage, with a line that stays."""
        if self._enabled:
            self._clear()
            print(text, file=self._stream, flush=True)

    def update(self, text):
        """Shows the progress of the stage: only on a terminal, and at most five times per second."""
        if self._live and time.monotonic() >= self._next_draw_s:
            self._next_draw_s = time.monotonic() + 0.2
            print(f"\r{text}\x1b[K", end="", file=self._stream, flush=True)

    def done(self):
        self._clear()

    def _clear(self):
        if self._live:
            print("\r\x1b[K", end="", file=self._stream)

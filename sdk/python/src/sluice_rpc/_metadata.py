"""The metadata by which sluice-proxy recognizes the calls of a fan-out."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

DEFAULT_PROXY = "unix:/run/sluice/proxy.sock"

_MAX_WEIGHT = 65536  # the proxy refuses a call with more
_BLOCK = "sluice-block"


@dataclasses.dataclass(frozen=True)
class Block:
    """The calls of one fan-out. `weight` is their number, 1 to 65536. `traffic_class` is one of the proxy's
    `schedule.classes`; by default, the first one."""

    weight: int
    traffic_class: str | None = None
    id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        if not 1 <= self.weight <= _MAX_WEIGHT:
            raise ValueError(f"weight {self.weight} is not a number from 1 to {_MAX_WEIGHT}")

    def metadata(self) -> list[tuple[str, str]]:
        return [(_BLOCK, self.id), ("sluice-weight", str(self.weight)), *class_metadata(self.traffic_class)]


def class_metadata(traffic_class: str | None) -> list[tuple[str, str]]:
    return [("sluice-class", traffic_class)] if traffic_class else []


_current: contextvars.ContextVar[Block | None] = contextvars.ContextVar("sluice_block", default=None)


@contextlib.contextmanager
def fan_out(weight: int, traffic_class: str | None = None) -> Iterator[Block]:
    """The calls within the `with` block are one fan-out of `weight` calls, if their channels have the interceptor.

    asyncio's tasks inherit the mark. A new thread does not: run its function by `contextvars.copy_context().run`.
    """
    with _marked(Block(weight, traffic_class)) as block:
        assert block
        yield block


def unmarked() -> contextlib.AbstractContextManager[Block | None]:
    """Calls within the `with` block belong to no fan-out."""
    return _marked(None)


@contextlib.contextmanager
def _marked(block: Block | None) -> Iterator[Block | None]:
    token = _current.set(block)
    try:
        yield block
    finally:
        _current.reset(token)


def marked_metadata(metadata: Iterable[tuple[str, Any]] | None) -> list[tuple[str, Any]] | None:
    """Returns the metadata of a call with those of the current fan-out, or None if the call needs no change."""
    block = _current.get()
    given = list(metadata or ())
    if block is None or any(name == _BLOCK for name, _ in given):
        return None
    return [*given, *block.metadata()]

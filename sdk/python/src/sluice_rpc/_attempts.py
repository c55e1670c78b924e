"""The decisions of a fan-out, without I/O: which calls to start, when it has ended, and with which result."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar, Union

import grpc

from ._metadata import Block, class_metadata

Response = TypeVar("Response")
Metadata = Sequence[tuple[str, Any]]


@dataclasses.dataclass(frozen=True)
class Ask:
    """One call of a fan-out. `method` is a unary method of a stub, such as `stub.Answer`.

    `replicas` are methods that can answer the same request. `response_bytes` is the size of the response, if the caller
    can predict it; a wrong size only costs time.
    """

    method: Any
    request: Any
    replicas: Sequence[Any] = ()
    response_bytes: int | None = None


Call = Union[Ask, tuple[Any, Any]]


class FanOutError(Exception):
    """Fewer calls than the quorum have responded. `result` has the responses and the errors."""

    def __init__(self, result: FanOutResult[Any]) -> None:
        errors = [f"call {index}: {_text(error)}" for index, error in enumerate(result.errors) if error is not None]
        last = f"; {errors[-1]}" if errors else ""
        super().__init__(f"{result.answered} of {result.asked} calls responded, {result.quorum} must respond{last}")
        self.result = result


@dataclasses.dataclass(frozen=True)
class FanOutResult(Generic[Response]):
    """How a fan-out ended. Both lists are in the order of the calls. A call that was cancelled, because its response
    was not needed, has neither a response nor an error."""

    responses: list[Response | None]
    errors: list[Exception | None]
    quorum: int
    hedges: int = 0  # calls to replicas after hedge_after
    retries: int = 0  # calls to replicas after a failure

    @property
    def asked(self) -> int:
        return len(self.responses)

    @property
    def answered(self) -> int:
        return sum(response is not None for response in self.responses)

    @property
    def coverage(self) -> float:
        """The share of the calls that responded, 0 to 1."""
        return self.answered / self.asked if self.asked else 1.0

    @property
    def ok(self) -> bool:
        return self.answered >= self.quorum

    def check(self) -> FanOutResult[Response]:
        """Returns itself. Raises FanOutError if fewer calls than the quorum have responded."""
        if not self.ok:
            raise FanOutError(self)
        return self


@dataclasses.dataclass(frozen=True)
class Attempt:
    index: int
    method: Any
    request: Any
    metadata: list[tuple[str, Any]]


class Attempts:
    """The state of one fan-out. Not thread-safe. Its caller starts the attempts that the functions return."""

    def __init__(
        self,
        calls: Iterable[Call],
        quorum: int | None,
        replica_ratio: float,
        traffic_class: str | None,
        metadata: Metadata,
    ) -> None:
        self._asks = [call if isinstance(call, Ask) else Ask(*call) for call in calls]
        count = len(self._asks)
        if quorum is not None and not 0 < quorum <= count:
            raise ValueError(f"quorum {quorum} is not a number from 1 to {count}, the number of calls")
        if not 0 <= replica_ratio <= 1:
            raise ValueError(f"replica_ratio {replica_ratio} is not a number from 0 to 1")
        self._fails_early = quorum is not None
        self._quorum = count if quorum is None else quorum
        self._class = traffic_class
        self._metadata = list(metadata)
        self._responses: list[Any] = [None] * count
        self._errors: list[Exception | None] = [None] * count
        self._running = [0] * count
        self._untried = [list(ask.replicas) for ask in self._asks]
        self._most = max(1, int(replica_ratio * count)) if replica_ratio > 0 else 0  # of retries, and of hedges
        self._answered = 0
        self._open = count  # calls that have neither responded nor failed
        self._hedges = self._retries = 0

    def first(self) -> list[Attempt]:
        if not self._asks:
            return []
        block = Block(len(self._asks), self._class).metadata()
        return [self._attempt(index, ask.method, block) for index, ask in enumerate(self._asks)]

    def responded(self, index: int, response: Any) -> None:
        self._running[index] -= 1
        if self._responses[index] is None:
            self._responses[index] = response
            self._errors[index] = None
            self._answered += 1
            self._open -= 1

    def failed(self, index: int, error: Exception) -> list[Attempt]:
        """Returns the call to a replica, if the worker is unavailable and has one. An open attempt of the same call
        does not delay it, because that attempt may hang."""
        self._running[index] -= 1
        if self._responses[index] is not None:
            return []
        self._errors[index] = error
        if _code(error) == grpc.StatusCode.UNAVAILABLE and self._retries < self._most:
            replica = self._replica(index)
            self._retries += len(replica)
            if replica:
                return replica
        if self._running[index] == 0:
            self._open -= 1
        return []

    def late(self) -> list[Attempt]:
        """Returns calls to replicas of the workers that have not responded."""
        waiting = [
            index
            for index, running in enumerate(self._running)
            if running and self._responses[index] is None and self._untried[index]
        ]
        replicas = [replica for index in waiting[: self._most] for replica in self._replica(index)]
        self._hedges += len(replicas)
        return replicas

    @property
    def ended(self) -> bool:
        if self._open == 0 or self._answered >= self._quorum:
            return True
        return self._fails_early and self._answered + self._open < self._quorum

    def result(self) -> FanOutResult[Any]:
        # A call with another attempt under way is cancelled, and has not failed.
        errors = [None if running else error for running, error in zip(self._running, self._errors)]
        return FanOutResult(self._responses, errors, self._quorum, self._hedges, self._retries)

    def _replica(self, index: int) -> list[Attempt]:
        if not self._untried[index]:
            return []
        # A replica's call is a block of its own: the first calls use up the weight of the fan-out.
        return [self._attempt(index, self._untried[index].pop(0), class_metadata(self._class))]

    def _attempt(self, index: int, method: Any, block: list[tuple[str, str]]) -> Attempt:
        self._running[index] += 1
        ask = self._asks[index]
        size = [] if ask.response_bytes is None else [("sluice-response-bytes", str(ask.response_bytes))]
        return Attempt(index, method, ask.request, [*self._metadata, *block, *size])


def _code(error: Exception) -> grpc.StatusCode | None:
    code = getattr(error, "code", None)
    return code() if callable(code) else None


def _text(error: Exception) -> str:
    code = _code(error)
    return str(error) if code is None else f"{code.name}: {getattr(error, 'details', str)()}"

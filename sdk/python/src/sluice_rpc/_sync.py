"""Channels, interceptors and fan-outs for grpc's synchronous API."""

from __future__ import annotations

import collections
import queue
import time
from collections.abc import Iterable, Sequence
from typing import Any, Callable

import grpc

from ._attempts import Attempt, Attempts, Call, FanOutResult, Metadata
from ._metadata import DEFAULT_PROXY, marked_metadata, unmarked


class _Details(
    collections.namedtuple(
        "_Details", ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")
    ),
    grpc.ClientCallDetails,
):
    """grpc's class has no constructor."""


class FanOutInterceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds the metadata of `fan_out` to the calls of a channel: grpc.intercept_channel(channel, FanOutInterceptor())."""

    def _intercept(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        metadata = marked_metadata(details.metadata)
        if metadata is None:
            return continuation(details, request)
        marked = _Details(
            details.method,
            details.timeout,
            metadata,
            details.credentials,
            getattr(details, "wait_for_ready", None),
            getattr(details, "compression", None),
        )
        return continuation(marked, request)

    intercept_unary_unary = _intercept
    intercept_unary_stream = _intercept
    intercept_stream_unary = _intercept
    intercept_stream_stream = _intercept


def channel_options(worker: str, options: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    # The address of the proxy is final: a proxy of the environment would be asked for a tunnel to it.
    return [("grpc.default_authority", worker), ("grpc.enable_http_proxy", 0), *options]


def proxied_channel(worker: str, proxy: str = DEFAULT_PROXY, options: Sequence[tuple[str, Any]] = ()) -> grpc.Channel:
    """Returns a channel to a worker (`host:port`) by sluice-proxy, in plaintext, with the interceptor."""
    channel = grpc.insecure_channel(proxy, options=channel_options(worker, options))
    return grpc.intercept_channel(channel, FanOutInterceptor())


def call_all(
    calls: Iterable[Call],
    *,
    timeout: float,
    quorum: int | None = None,
    hedge_after: float | None = None,
    replica_ratio: float = 0.2,
    traffic_class: str | None = None,
    metadata: Metadata = (),
) -> FanOutResult[Any]:
    """Makes all calls at once, as one fan-out, and waits for their end.

    `calls` are pairs `(stub.Method, request)` or `Ask`s. The fan-out has `timeout` seconds. With a `quorum`, it ends
    after this number of responses, or once it cannot reach it, and cancels the rest. Otherwise it waits for all calls.
    Errors of workers are in the result, and `check()` raises them.

    After `hedge_after` seconds, calls without a response are repeated at a replica, if they have one. The time that a
    response waits for the link counts. A worker that is unavailable is replaced at once, also while a hedge is open.
    `replica_ratio` bounds the retries, and the hedges, as a share of the calls: at least one of each; 0 permits none.
    """
    attempts = Attempts(calls, quorum, replica_ratio, traffic_class, metadata)
    now = time.monotonic()
    deadline, hedge_at = now + timeout, None if hedge_after is None else now + hedge_after
    ended: queue.SimpleQueue[tuple[Attempt, Any]] = queue.SimpleQueue()
    started: list[Any] = []

    def start(attempt: Attempt) -> None:
        left = max(0.0, deadline - time.monotonic())
        call = attempt.method.future(attempt.request, timeout=left, metadata=attempt.metadata)
        started.append(call)
        call.add_done_callback(lambda call: ended.put((attempt, call)))

    try:
        with unmarked():
            for attempt in attempts.first():
                start(attempt)
            while not attempts.ended:
                try:
                    attempt, call = ended.get(
                        timeout=None if hedge_at is None else max(0.0, hedge_at - time.monotonic())
                    )
                except queue.Empty:
                    hedge_at = None
                    for replica in attempts.late():
                        start(replica)
                    continue
                error = _error(call)
                if error is None:
                    attempts.responded(attempt.index, call.result())
                    continue
                for replica in attempts.failed(attempt.index, error):
                    start(replica)
        return attempts.result()
    finally:
        for call in started:
            call.cancel()


def _error(call: Any) -> Exception | None:
    try:
        error: Exception | None = call.exception()
        return error
    except grpc.FutureCancelledError as cancelled:  # the channel was closed
        return cancelled

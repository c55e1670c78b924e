"""Channels, interceptors and fan-outs for grpc.aio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Callable

import grpc.aio

from ._attempts import Attempt, Attempts, Call, FanOutResult, Metadata
from ._metadata import DEFAULT_PROXY, marked_metadata, unmarked
from ._sync import channel_options

__all__ = ["call_all", "interceptors", "proxied_channel"]


async def _intercept(_self: Any, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
    metadata = marked_metadata(details.metadata)
    if metadata is not None:
        details = details._replace(metadata=grpc.aio.Metadata(*metadata))
    return await continuation(details, request)


# grpc.aio uses an interceptor for one kind of method only.
class _UnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):
    intercept_unary_unary = _intercept


class _UnaryStream(grpc.aio.UnaryStreamClientInterceptor):
    intercept_unary_stream = _intercept


class _StreamUnary(grpc.aio.StreamUnaryClientInterceptor):
    intercept_stream_unary = _intercept


class _StreamStream(grpc.aio.StreamStreamClientInterceptor):
    intercept_stream_stream = _intercept


def interceptors() -> list[grpc.aio.ClientInterceptor]:
    """Returns the interceptors that add the metadata of `sluice_rpc.fan_out` to the calls of a channel."""
    return [_UnaryUnary(), _UnaryStream(), _StreamUnary(), _StreamStream()]


def proxied_channel(
    worker: str, proxy: str = DEFAULT_PROXY, options: Sequence[tuple[str, Any]] = ()
) -> grpc.aio.Channel:
    """Returns a channel to a worker (`host:port`) by sluice-proxy, in plaintext, with the interceptors."""
    return grpc.aio.insecure_channel(proxy, options=channel_options(worker, options), interceptors=interceptors())


async def call_all(
    calls: Iterable[Call],
    *,
    timeout: float,
    quorum: int | None = None,
    hedge_after: float | None = None,
    replica_ratio: float = 0.2,
    traffic_class: str | None = None,
    metadata: Metadata = (),
) -> FanOutResult[Any]:
    """Makes all calls at once, as one fan-out, and waits for their end, as `sluice_rpc.call_all` does. If its task is
    cancelled, so are the calls."""
    attempts = Attempts(calls, quorum, replica_ratio, traffic_class, metadata)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    ended: asyncio.Queue[tuple[Attempt, Any, Exception | None] | None] = asyncio.Queue()
    tasks: list[asyncio.Task[None]] = []

    async def run(attempt: Attempt) -> None:
        left = max(0.0, deadline - loop.time())
        try:
            response = await attempt.method(attempt.request, timeout=left, metadata=attempt.metadata)
            ended.put_nowait((attempt, response, None))
        except asyncio.CancelledError:  # the end of the fan-out, or of the channel
            ended.put_nowait((attempt, None, grpc.FutureCancelledError("the call was cancelled")))
            raise
        except Exception as error:  # noqa: BLE001
            ended.put_nowait((attempt, None, error))

    def start(each: list[Attempt]) -> None:
        tasks.extend(loop.create_task(run(attempt)) for attempt in each)

    timer = None if hedge_after is None else loop.call_later(hedge_after, ended.put_nowait, None)
    try:
        with unmarked():
            start(attempts.first())
            while not attempts.ended:
                event = await ended.get()
                if event is None:
                    start(attempts.late())
                    continue
                attempt, response, error = event
                if error is None:
                    attempts.responded(attempt.index, response)
                else:
                    start(attempts.failed(attempt.index, error))
        return attempts.result()
    finally:
        if timer:
            timer.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

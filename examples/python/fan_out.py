"""Calls all workers at once, with grpcio alone."""

import asyncio

import grpc

import answers_pb2_grpc


class FanOut:
    """A channel to each worker. There is one for each event loop. Use it as a context manager.

        If the environment has http_proxy or grpc_proxy, gRPC itself uses that proxy. With `via`, channels connect to
    that address instead, and name their worker in :authority.
    """

    def __init__(self, workers, via=None):
        if via:
            self._channels = [
                grpc.aio.insecure_channel(via, options=[("grpc.default_authority", worker)]) for worker in workers
            ]
        else:
            self._channels = [grpc.aio.insecure_channel(worker) for worker in workers]
        self._workers = [answers_pb2_grpc.AnswersStub(channel) for channel in self._channels]

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await asyncio.gather(*(channel.close() for channel in self._channels))

    async def ask(self, request, timeout_s):
        """Returns the responses in the order of the workers. Raises the first error as grpc.aio.AioRpcError, and
        cancels the other calls."""
        calls = [asyncio.ensure_future(self._answer(worker, request, timeout_s)) for worker in self._workers]
        try:
            return await asyncio.gather(*calls)
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    async def _answer(self, worker, request, timeout_s):
        return await worker.Answer(request, timeout=timeout_s)

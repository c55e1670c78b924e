"""A gRPC server whose calls wait until the test releases them, and the ways of a test to a proxy."""

import concurrent.futures
import threading

import grpc

METHOD = "/test.Test/Method"


class Workers:
    """One server at several addresses. The request decides about the response:

    b"wait" waits for `release`, b"unavailable" and b"internal" fail, and any other request is the response. If all
    requests are b"third", the first is UNAVAILABLE once the second has arrived, and the second waits for `release`.
    """

    def __init__(self, *addresses):
        self.metadata = []  # of each call, in the order of arrival
        self.cancelled = threading.Semaphore(0)  # released by each call that the client cancels
        self._arrived = threading.Condition()
        self._released = threading.Event()
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(32))
        methods = {
            "Method": grpc.unary_unary_rpc_method_handler(self._method),
            "Stream": grpc.stream_stream_rpc_method_handler(self._stream),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", methods),))
        self.ports = [self._server.add_insecure_port(address) for address in addresses]

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *_):
        self.release()
        self._server.stop(None).wait()

    def await_calls(self, count):
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.metadata) >= count, 30), f"{len(self.metadata)} calls"

    def release(self):
        self._released.set()

    def _method(self, request, context):
        context.add_callback(lambda: None if context.code() else self.cancelled.release())
        with self._arrived:
            self.metadata.append(dict(context.invocation_metadata()))
            number = len(self.metadata)
            self._arrived.notify_all()
        if (request, number) == (b"third", 1):
            self.await_calls(2)
            context.abort(grpc.StatusCode.UNAVAILABLE, "as requested")
        if request == b"wait" or (request, number) == (b"third", 2):
            self._released.wait()
        for code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL):
            if request.decode() == code.name.lower():
                context.abort(code, "as requested")
        return request

    def _stream(self, requests, context):
        for request in requests:
            yield self._method(request, context)

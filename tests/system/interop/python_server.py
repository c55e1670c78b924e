#!/usr/bin/env python3
"""Serves interop.proto with Python's grpcio. Writes "port N" to stderr."""

import sys
import threading
from concurrent import futures

import grpc
from google.protobuf import empty_pb2, struct_pb2, wrappers_pb2

_RELEASED = threading.Event()
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def _begin(request, context):
    if request.fields["early"].number_value:
        context.send_initial_metadata(())
    if request.fields["hold"].number_value:
        _RELEASED.wait()  # even if the call has been cancelled


def _end(request, context):
    code = int(request.fields["code"].number_value)
    if code:
        context.abort(_CODES[code], request.fields["text"].string_value)


def _message(request):
    return wrappers_pb2.BytesValue(value=b"x" * int(request.fields["bytes"].number_value))


def _get(request, context):
    _begin(request, context)
    _end(request, context)
    return _message(request)


def _list(request, context):
    _begin(request, context)
    for _ in range(int(request.fields["messages"].number_value or 1)):
        yield _message(request)
    _end(request, context)


def _release(_request, _context):
    _RELEASED.set()
    return empty_pb2.Empty()


def main():
    def handler(make, function, request=struct_pb2.Struct, response=wrappers_pb2.BytesValue):
        return make(function, request.FromString, response.SerializeToString)

    methods = {
        "Get": handler(grpc.unary_unary_rpc_method_handler, _get),
        "List": handler(grpc.unary_stream_rpc_method_handler, _list),
        "Release": handler(grpc.unary_unary_rpc_method_handler, _release, empty_pb2.Empty, empty_pb2.Empty),
    }
    server = grpc.server(futures.ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("sluice.interop.v1.Interop", methods)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stderr.write(f"port {port}\n")
    server.wait_for_termination()


if __name__ == "__main__":
    main()

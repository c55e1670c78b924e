#!/usr/bin/env python3
"""A server and a client of a part of gRPC's interop suite, for any version of grpcio: no generated code, no protobuf.

    suite.py serve HOST:PORT
    suite.py play CASE TARGET [AUTHORITY]"""

import concurrent.futures
import sys
import time

import grpc

_SERVICE = "grpc.testing.TestService"
_INITIAL, _TRAILING = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
_TIMEOUT_S = 30
_LARGE = (271828, 314159)  # request, response
_STREAM = (31415, 9, 2653, 58979)
_SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"


def _varint(number):
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)


def _field(number, value):
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _payload(number, size):
    return _field(number, _field(2, bytes(size)))


def _take(data, at):
    number, shift = 0, 0
    while True:
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return number, at


def _fields(data):
    """Returns {number: values} of a message with varints and bytes."""
    found, at = {}, 0
    while at < len(data):
        key, at = _take(data, at)
        value, at = _take(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        found.setdefault(key >> 3, []).append(value)
    return found


def _size(message):
    """The size of the body of the first payload of a response."""
    payload = _fields(message).get(1, [b""])[0]
    return len(_fields(payload).get(2, [b""])[0])


# The server.


def _echo(context):
    given = dict(context.invocation_metadata())
    if _INITIAL in given:
        context.send_initial_metadata(((_INITIAL, given[_INITIAL]),))
    if _TRAILING in given:
        context.set_trailing_metadata(((_TRAILING, given[_TRAILING]),))


def _end(fields, context):
    if 7 in fields:
        status = _fields(fields[7][0])
        codes = {code.value[0]: code for code in grpc.StatusCode}
        context.abort(codes[status[1][0]], status.get(2, [b""])[0].decode())


def _unary(request, context):
    _echo(context)
    fields = _fields(request)
    _end(fields, context)
    return _payload(1, fields.get(2, [0])[0])


def _stream(requests, context):
    _echo(context)
    for request in requests:
        fields = _fields(request)
        for each in fields.get(2, []):
            parameters = _fields(each)
            time.sleep(parameters.get(2, [0])[0] / 1e6)
            yield _payload(1, parameters.get(1, [0])[0])
        _end(fields, context)


def serve(address):
    methods = {
        "EmptyCall": grpc.unary_unary_rpc_method_handler(lambda request, context: _echo(context) or b""),
        "UnaryCall": grpc.unary_unary_rpc_method_handler(_unary),
        "StreamingOutputCall": grpc.unary_stream_rpc_method_handler(lambda request, context: _stream([request], context)),
        "FullDuplexCall": grpc.stream_stream_rpc_method_handler(_stream),
    }
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_SERVICE, methods)])
    server.add_insecure_port(address)
    server.start()
    print(f"grpcio {grpc.__version__} serves", flush=True)
    server.wait_for_termination()


# The client.


def _expect(found, wanted):
    if found != wanted:
        raise AssertionError(f"{found!r}, not {wanted!r}")


def _expect_error(call, code, text=None, or_code=None):
    try:
        call()
    except grpc.RpcError as error:
        if error.code() != or_code:
            _expect(error.code(), code)
        if text is not None:
            _expect(error.details(), text)
    else:
        raise AssertionError("the call succeeded")


class Client:
    def __init__(self, channel):
        def method(kind, name, service=_SERVICE):
            return getattr(channel, kind)(f"/{service}/{name}")

        self._empty = method("unary_unary", "EmptyCall")
        self._call = method("unary_unary", "UnaryCall")
        self._stream = method("unary_stream", "StreamingOutputCall")
        self._duplex = method("stream_stream", "FullDuplexCall")
        self._unimplemented = method("unary_unary", "UnimplementedCall")
        self._health = method("unary_unary", "Check", "grpc.health.v1.Health")

    def empty_unary(self):
        _expect(self._empty(b"", timeout=_TIMEOUT_S), b"")

    def large_unary(self):
        response = self._call(_field(2, _LARGE[1]) + _payload(3, _LARGE[0]), timeout=_TIMEOUT_S)
        _expect(_size(response), _LARGE[1])

    def server_streaming(self):
        request = b"".join(_field(2, _field(1, size)) for size in _STREAM)
        _expect(tuple(map(_size, self._stream(request, timeout=_TIMEOUT_S))), _STREAM)

    def custom_metadata(self):
        metadata = ((_INITIAL, "test_initial_metadata_value"), (_TRAILING, b"\xab\xab\xab"))
        _, call = self._call.with_call(_field(2, 1), metadata=metadata, timeout=_TIMEOUT_S)
        _expect(dict(call.initial_metadata())[_INITIAL], metadata[0][1])
        _expect(dict(call.trailing_metadata())[_TRAILING], metadata[1][1])

    def _status(self, text):
        request = _field(7, _field(1, 2) + _field(2, text.encode()))
        _expect_error(lambda: self._call(request, timeout=_TIMEOUT_S), grpc.StatusCode.UNKNOWN, text)

    def status_code_and_message(self):
        self._status("test status message")

    def special_status_message(self):
        self._status(_SPECIAL)

    def unimplemented_method(self):
        _expect_error(lambda: self._unimplemented(b"", timeout=_TIMEOUT_S), grpc.StatusCode.UNIMPLEMENTED)

    def timeout_on_sleeping_server(self):
        request = _field(2, _field(1, 1) + _field(2, 10_000_000))
        codes = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
        # A server that resets the stream at the deadline, such as grpc-go's, may be earlier than the client's timer.
        _expect_error(lambda: list(self._duplex(iter([request]), timeout=0.1)), codes[0], or_code=codes[1])

    def health_check(self):
        _expect(self._health(b"", timeout=_TIMEOUT_S), _field(1, 1))


def play(case, target, authority=""):
    options = [("grpc.enable_http_proxy", 0)] + ([("grpc.default_authority", authority)] if authority else [])
    with grpc.insecure_channel(target, options=options) as channel:
        getattr(Client(channel), case)()
    print(f"grpcio {grpc.__version__}: {case} passed")


if __name__ == "__main__":
    {"serve": serve, "play": play}[sys.argv[1]](*sys.argv[2:])

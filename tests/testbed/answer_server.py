#!/usr/bin/env python3
"""A gRPC service as one writes it in Python without Sluice: grpcio's ordinary server with a thread pool.

    answer_server.py FOLDER_OF_MESSAGES READY_FILE HOST:PORT...

Serves Answers until SIGTERM, and writes its addresses to READY_FILE when it serves; port 0 is a free one.
FOLDER_OF_MESSAGES holds answers_pb2.py, as protoc made it.
"""

import concurrent.futures
import pathlib
import random
import signal
import sys
import threading
import time

import grpc

_THREADS = 64  # calls that one server thinks about at the same time


class Answers:
    def __init__(self, messages, seed):
        self._messages = messages
        self._random = random.Random(seed)  # a server draws the same in every run
        self._lock = threading.Lock()

    def answer(self, request, _context):
        return self._think(request)

    def answer_stream(self, request, _context):
        response = self._think(request)
        for _ in range(max(1, request.messages)):
            yield response

    def _think(self, request):
        with self._lock:
            tail = self._random.random() < request.tail_share
        time.sleep((request.tail_think_us if tail else request.think_us) / 1e6)
        return self._messages.AnswerResponse(payload=b"x" * request.response_bytes, tail=tail)


def handlers(answers, messages):
    # By hand what the plugin of protoc generates: Debian's python3-grpc-tools is older than its protobuf.
    codec = {
        "request_deserializer": messages.AnswerRequest.FromString,
        "response_serializer": messages.AnswerResponse.SerializeToString,
    }
    return grpc.method_handlers_generic_handler(
        "sluice.testbed.v1.Answers",
        {
            "Answer": grpc.unary_unary_rpc_method_handler(answers.answer, **codec),
            "AnswerStream": grpc.unary_stream_rpc_method_handler(answers.answer_stream, **codec),
        },
    )


def main():
    messages_folder, ready_file, *addresses = sys.argv[1:]
    sys.path.insert(0, messages_folder)
    import answers_pb2 as messages

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(_THREADS))
    server.add_generic_rpc_handlers((handlers(Answers(messages, seed=addresses[0]), messages),))
    ports = [server.add_insecure_port(address) for address in addresses]
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    server.start()
    serving = [f"{address.rpartition(':')[0]}:{port}" for address, port in zip(addresses, ports)]
    # Renamed: written whole, or not there at all.
    unfinished = pathlib.Path(ready_file + ".new")
    unfinished.write_text("".join(f"{address}\n" for address in serving))
    unfinished.rename(ready_file)
    stopped.wait()
    server.stop(grace=0).wait()


if __name__ == "__main__":
    main()

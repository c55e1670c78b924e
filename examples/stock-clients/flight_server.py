"""Arrow Flight servers over TLS: flight_server.py DATA HOST:PORT... Each sends the part of the object that a ticket names."""

import pathlib
import signal
import sys

import pyarrow
from pyarrow import flight

_ROWS_PER_BATCH = 1024


class Server(flight.FlightServerBase):
    def __init__(self, address, whole, certificate, key):
        super().__init__(f"grpc+tls://{address}", tls_certificates=[(certificate, key)])
        self._whole = whole

    def do_get(self, _context, ticket):
        begin, end = map(int, ticket.ticket.split(b"-"))
        column = pyarrow.Array.from_buffers(pyarrow.uint8(), end - begin, [None, self._whole.slice(begin, end - begin)])
        table = pyarrow.table({"bytes": column})
        return flight.GeneratorStream(table.schema, table.to_batches(max_chunksize=_ROWS_PER_BATCH))


def main():
    data = pathlib.Path(sys.argv[1])
    whole = pyarrow.py_buffer((data / "object").read_bytes())
    certificate, key = ((data / name).read_bytes() for name in ("cert.pem", "key.pem"))
    servers = [Server(address, whole, certificate, key) for address in sys.argv[2:]]
    signal.sigwait({signal.SIGTERM})
    for server in servers:
        server.shutdown()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    main()

"""Reads one stream from each Arrow Flight server, all at once, with pyarrow."""

from concurrent.futures import ThreadPoolExecutor

import load
from pyarrow import flight


def main():
    flags = load.parse_flags(__doc__)
    parts = load.parts_of_object(flags)
    certificate = (flags.data / "cert.pem").read_bytes()
    clients = [flight.FlightClient(f"grpc+tls://{worker}", tls_root_certs=certificate) for worker in flags.workers]

    def read(i):
        size = len(parts[i])
        column = clients[i].do_get(flight.Ticket(f"{i * size}-{(i + 1) * size}")).read_all().column("bytes")
        return b"".join(chunk.buffers()[1].slice(chunk.offset, len(chunk)).to_pybytes() for chunk in column.chunks)

    with ThreadPoolExecutor(len(clients)) as threads:

        def read_block():
            load.check_parts(parts, list(threads.map(read, range(len(clients)))))
            return sum(map(len, parts))

        load.measure(flags, read_block)


if __name__ == "__main__":
    main()

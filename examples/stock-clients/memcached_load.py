"""Reads ten values for each memcached in one multi-get of libmemcached. Its hash decides which server has which."""

import load
import pylibmc

_VALUES_PER_SERVER = 10


def main():
    flags = load.parse_flags(__doc__)
    whole = b"".join(load.parts_of_object(flags))
    count = _VALUES_PER_SERVER * len(flags.workers)
    size = len(whole) // count
    values = {f"value-{i}": whole[i * size : (i + 1) * size] for i in range(count)}
    client = pylibmc.Client(flags.workers, behaviors={"tcp_nodelay": True})
    for key, value in values.items():
        if not client.set(key, value):
            raise ValueError(f"memcached does not keep {key}")

    def read_block():
        received = client.get_multi(list(values))
        load.check_parts(list(values.values()), [received.get(key) for key in values])
        return sum(map(len, values.values()))

    load.measure(flags, read_block)


if __name__ == "__main__":
    main()

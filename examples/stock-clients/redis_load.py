"""Reads one value from each node of a Redis cluster, in one pipeline of redis-py's cluster client."""

import itertools
import time

import load
import redis
from redis.cluster import RedisCluster
from redis.crc import key_slot

_SLOTS = 16384
_START_S = 60


def main():
    flags = load.parse_flags(__doc__)
    parts = load.parts_of_object(flags)
    keys = _keys(len(parts))
    host, _, port = flags.workers[0].rpartition(":")
    cluster = RedisCluster(host=host, port=int(port))
    for key, part in zip(keys, parts):
        _set_once_it_serves(cluster, key, part)

    def read_block():
        pipeline = cluster.pipeline()
        for key in keys:
            pipeline.get(key)
        load.check_parts(parts, pipeline.execute())
        return sum(map(len, parts))

    load.measure(flags, read_block)


def _keys(nodes):
    """Returns a key for each node. servers.py gives each node the same number of slots."""
    keys = {}
    for i in itertools.count():
        key = f"value-{i}"
        keys.setdefault(key_slot(key.encode()) * nodes // _SLOTS, key)
        if len(keys) == nodes:
            return [keys[node] for node in range(nodes)]


def _set_once_it_serves(cluster, key, value):
    deadline_s = time.monotonic() + _START_S
    while True:
        try:
            return cluster.set(key, value)
        except redis.exceptions.RedisError:  # a cluster serves some seconds after its start
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    main()

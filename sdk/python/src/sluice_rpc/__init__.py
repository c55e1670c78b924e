"""Fan-outs of gRPC calls through sluice-proxy, which serves one fan-out before the next.

`call_all` asks many workers at once. `fan_out` marks the calls that a program makes itself, on a channel of
`proxied_channel` or with `FanOutInterceptor`. `sluice_rpc.aio` has the same for grpc.aio.
"""

from ._attempts import Ask, FanOutError, FanOutResult
from ._metadata import DEFAULT_PROXY, Block, fan_out
from ._sync import FanOutInterceptor, call_all, proxied_channel

__all__ = [
    "DEFAULT_PROXY",
    "Ask",
    "Block",
    "FanOutError",
    "FanOutInterceptor",
    "FanOutResult",
    "call_all",
    "fan_out",
    "proxied_channel",
]

"""Tests with a real sluice-proxy: SLUICE_TEST_PROXY is its address, and SLUICE_TEST_ADMIN its admin address. The test
serves the workers itself, at the addresses SLUICE_TEST_WORKERS with port 0, which the proxy must permit."""

import asyncio
import os
import re
import unittest
import urllib.request

from workers import METHOD, Workers

import sluice_rpc
import sluice_rpc.aio

_PROXY = os.environ.get("SLUICE_TEST_PROXY", "")
_ADMIN = os.environ.get("SLUICE_TEST_ADMIN", "")
_LISTENS = os.environ.get("SLUICE_TEST_WORKERS", "").split(",")
_TIMEOUT = 30


def blocks_of_the_proxy():
    with urllib.request.urlopen(f"http://{_ADMIN}/metrics", timeout=_TIMEOUT) as page:
        return int(re.search(r"^sluice_queued_blocks (\d+)", page.read().decode(), re.MULTILINE)[1])


@unittest.skipUnless(_PROXY, "SLUICE_TEST_PROXY names no proxy")
class ProxyTest(unittest.TestCase):
    def setUp(self):
        self.workers = self.enterContext(Workers(*_LISTENS))
        hosts = [listen.rpartition(":")[0] for listen in _LISTENS]
        self.addresses = [f"{host}:{port}" for host, port in zip(hosts, self.workers.ports, strict=True)]

    def expect(self, calls, blocks):
        """The workers hold `calls` calls, which are `blocks` blocks of the proxy's schedule. Releases them."""
        self.workers.await_calls(calls)
        self.assertEqual(blocks_of_the_proxy(), blocks)
        self.workers.release()
        self.assertFalse([name for call in self.workers.metadata for name in call if name.startswith("sluice-") and name != "sluice-client"])

    def test_calls_are_one_block(self):
        channels = [self.enterContext(sluice_rpc.proxied_channel(worker, _PROXY)) for worker in self.addresses]
        methods = [channel.unary_unary(METHOD) for channel in channels]
        with sluice_rpc.fan_out(weight=len(methods)):
            calls = [method.future(b"wait", timeout=_TIMEOUT) for method in methods]
        calls.append(methods[0].future(b"wait", timeout=_TIMEOUT))
        self.expect(len(methods) + 1, blocks=2)
        self.assertEqual([call.result() for call in calls], [b"wait"] * len(calls))

    def test_call_all(self):
        async def run():
            channels = [sluice_rpc.aio.proxied_channel(worker, _PROXY) for worker in self.addresses]
            calls = [(channel.unary_unary(METHOD), b"wait") for channel in channels]
            results = asyncio.gather(*(sluice_rpc.aio.call_all(calls, timeout=_TIMEOUT) for _ in range(3)))
            await asyncio.to_thread(self.expect, 3 * len(calls), blocks=3)
            for result in await results:
                self.assertEqual(result.check().responses, [b"wait"] * len(calls))
            await asyncio.gather(*(channel.close() for channel in channels))

        asyncio.run(run())

    def test_a_quorum(self):
        channels = [self.enterContext(sluice_rpc.proxied_channel(worker, _PROXY)) for worker in self.addresses]
        first, *rest = (channel.unary_unary(METHOD) for channel in channels)
        calls = [(first, b"first"), *((method, b"wait") for method in rest)]
        result = sluice_rpc.call_all(calls, timeout=_TIMEOUT, quorum=1).check()
        self.assertEqual(result.responses[0], b"first")
        self.assertEqual(result.coverage, 1 / len(calls))

    def test_a_worker_that_is_not_permitted(self):
        channel = self.enterContext(sluice_rpc.proxied_channel("192.0.2.1:7000", _PROXY))
        with self.assertRaisesRegex(sluice_rpc.FanOutError, "call 0: PERMISSION_DENIED"):
            sluice_rpc.call_all([(channel.unary_unary(METHOD), b"")], timeout=_TIMEOUT).check()


if __name__ == "__main__":
    unittest.main()

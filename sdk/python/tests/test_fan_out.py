import asyncio
import contextvars
import functools
import threading
import unittest

import grpc
from workers import METHOD, Workers

import sluice_rpc
import sluice_rpc.aio

_TIMEOUT = 30
_LOOP = asyncio.new_event_loop()  # grpc.aio logs errors if a process uses several


def _run_sync(channels, calls, **options):
    stubs = [sluice_rpc.proxied_channel("worker:1", proxy) for proxy in channels]
    try:
        return sluice_rpc.call_all(_asks(stubs, calls), timeout=_TIMEOUT, **options)
    finally:
        for stub in stubs:
            stub.close()


def _run_aio(channels, calls, **options):
    async def run():
        stubs = [sluice_rpc.aio.proxied_channel("worker:1", proxy) for proxy in channels]
        try:
            return await sluice_rpc.aio.call_all(_asks(stubs, calls), timeout=_TIMEOUT, **options)
        finally:
            for stub in stubs:
                await stub.close()

    return _LOOP.run_until_complete(run())


def _asks(stubs, calls):
    """A call is its request, or its request and the number of the channel, or an Ask of numbers of channels."""
    methods = [stub.unary_unary(METHOD) for stub in stubs]
    for call in calls:
        if isinstance(call, sluice_rpc.Ask):
            replicas = [methods[number] for number in call.replicas]
            yield sluice_rpc.Ask(methods[call.method], call.request, replicas, call.response_bytes)
        else:
            yield (methods[0], call)


class CallAllTest(unittest.TestCase):
    """Both ways of grpc, directly to the workers: the tests read the metadata that a proxy would receive."""

    def each_way(self, test):
        for run in (_run_sync, _run_aio):
            with self.subTest(run.__name__), Workers("127.0.0.1:0", "127.0.0.1:0") as workers:
                channels = [f"127.0.0.1:{port}" for port in workers.ports]
                test(workers, functools.partial(run, channels))

    def test_responses_are_in_the_order_of_the_calls_and_of_one_block(self):
        def test(workers, call_all):
            result = call_all([b"a", b"b", b"c"], traffic_class="queries", metadata=[("key", "value")]).check()
            self.assertEqual(result.responses, [b"a", b"b", b"c"])
            self.assertEqual(result.errors, [None] * 3)
            self.assertEqual(result.coverage, 1)
            self.assertEqual({call["sluice-weight"] for call in workers.metadata}, {"3"})
            self.assertEqual({call["sluice-class"] for call in workers.metadata}, {"queries"})
            self.assertEqual({call["key"] for call in workers.metadata}, {"value"})
            call_all([b"a"])
            self.assertEqual(len({call["sluice-block"] for call in workers.metadata}), 2)

        self.each_way(test)

    def test_errors_are_kept(self):
        def test(_workers, call_all):
            result = call_all([b"a", b"internal", b"c"])
            self.assertEqual(result.responses, [b"a", None, b"c"])
            self.assertEqual(result.errors[1].code(), grpc.StatusCode.INTERNAL)
            self.assertAlmostEqual(result.coverage, 2 / 3)
            with self.assertRaisesRegex(
                sluice_rpc.FanOutError, "2 of 3 calls responded, 3 must respond; call 1: INTERNAL: as requested"
            ):
                result.check()

        self.each_way(test)

    def test_a_quorum_ends_the_fan_out_and_cancels_the_rest(self):
        def test(workers, call_all):
            result = call_all([b"a", b"wait", b"c"], quorum=2).check()
            self.assertEqual(result.responses, [b"a", None, b"c"])
            self.assertEqual(result.errors, [None] * 3)
            if len(workers.metadata) == 3:  # the call may also end before it reaches its worker
                self.assertTrue(workers.cancelled.acquire(timeout=_TIMEOUT))

        self.each_way(test)

    def test_a_quorum_that_cannot_be_reached_ends_the_fan_out(self):
        def test(_workers, call_all):
            result = call_all([b"wait", b"internal", b"unavailable"], quorum=2)
            self.assertFalse(result.ok)
            self.assertEqual(result.answered, 0)

        self.each_way(test)

    def test_a_worker_that_is_unavailable_is_replaced(self):
        def test(workers, call_all):
            ask = sluice_rpc.Ask(0, b"unavailable", replicas=[1], response_bytes=11)
            result = call_all([ask, b"b"])
            self.assertEqual(result.errors[0].code(), grpc.StatusCode.UNAVAILABLE)
            self.assertEqual((result.retries, result.hedges, result.answered), (1, 0, 1))
            self.assertEqual([call.get("sluice-response-bytes") for call in workers.metadata].count("11"), 2)
            self.assertEqual(sum("sluice-block" in call for call in workers.metadata), 2)

        self.each_way(test)

    def test_a_late_call_is_hedged(self):
        def test(workers, call_all):
            asks = [sluice_rpc.Ask(0, b"wait", replicas=[1])] * 2
            thread = threading.Thread(target=lambda: (workers.await_calls(3), workers.release()))
            thread.start()
            result = call_all(asks, hedge_after=0.0).check()
            thread.join()
            self.assertEqual(result.responses, [b"wait"] * 2)
            self.assertEqual(result.hedges, 1, "of 2 calls, one may be repeated")
            self.assertEqual(len({call.get("sluice-block") for call in workers.metadata}), 2, "the hedge has none")

        self.each_way(test)

    def test_a_failure_is_replaced_at_once_while_a_hedge_hangs(self):
        def test(_workers, call_all):
            result = call_all([sluice_rpc.Ask(0, b"third", replicas=[1, 1])], hedge_after=0.0)
            self.assertEqual(result.responses, [b"third"])
            self.assertEqual((result.hedges, result.retries), (1, 1), "each may be repeated once")

        self.each_way(test)

    def test_a_deadline_is_an_error_of_the_call(self):
        workers = self.enterContext(Workers("127.0.0.1:0"))
        channel = self.enterContext(sluice_rpc.proxied_channel("worker:1", f"127.0.0.1:{workers.ports[0]}"))
        result = sluice_rpc.call_all([(channel.unary_unary(METHOD), b"wait")], timeout=0.05)
        self.assertEqual(result.errors[0].code(), grpc.StatusCode.DEADLINE_EXCEEDED)

    def test_options_out_of_bounds(self):
        def test(_workers, call_all):
            with self.assertRaisesRegex(ValueError, "quorum 2 is not a number from 1 to 1"):
                call_all([b"a"], quorum=2)
            with self.assertRaisesRegex(ValueError, "replica_ratio 2 is"):
                call_all([b"a"], replica_ratio=2)
            self.assertEqual(call_all([]).check().coverage, 1)

        self.each_way(test)

    def test_a_cancelled_task_cancels_the_calls(self):
        async def run(port, workers):
            async with sluice_rpc.aio.proxied_channel("worker:1", f"127.0.0.1:{port}") as channel:
                call_all = sluice_rpc.aio.call_all([(channel.unary_unary(METHOD), b"wait")], timeout=_TIMEOUT)
                task = asyncio.create_task(call_all)
                await asyncio.to_thread(workers.await_calls, 1)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task

        with Workers("127.0.0.1:0") as workers:
            _LOOP.run_until_complete(run(workers.ports[0], workers))
            self.assertTrue(workers.cancelled.acquire(timeout=_TIMEOUT))


class MarkTest(unittest.TestCase):
    def setUp(self):
        self.workers = self.enterContext(Workers("127.0.0.1:0"))
        self.target = f"127.0.0.1:{self.workers.ports[0]}"

    def blocks(self):
        return [(call.get("sluice-block"), call.get("sluice-weight")) for call in self.workers.metadata]

    def test_the_calls_of_a_with_block_are_one_fan_out(self):
        with sluice_rpc.proxied_channel("worker:1", self.target) as channel:
            method = channel.unary_unary(METHOD)
            method(b"outside")
            with sluice_rpc.fan_out(weight=3) as block:
                method(b"inside")
                method.future(b"inside").result()
                list(channel.stream_stream("/test.Test/Stream")(iter([b"inside"])))
                method(b"own", metadata=[("sluice-block", "own")])
                with sluice_rpc.fan_out(1) as inner:
                    method(b"inner")
                sluice_rpc.call_all([(method, b"nested")], timeout=_TIMEOUT).check()
                thread = threading.Thread(target=contextvars.copy_context().run, args=(method, b"thread"))
                thread.start()
                thread.join()
            method(b"outside")
        marked = (block.id, "3")
        seen = self.blocks()
        self.assertNotIn(seen[6][0], (None, block.id))
        self.assertEqual(seen[:6], [(None, None), marked, marked, marked, ("own", None), (inner.id, "1")])
        self.assertEqual(seen[7:], [marked, (None, None)])

    def test_tasks_inherit_the_mark(self):
        async def run():
            async with sluice_rpc.aio.proxied_channel("worker:1", self.target) as channel:
                method = channel.unary_unary(METHOD)
                with sluice_rpc.fan_out(2, traffic_class="queries") as block:
                    await asyncio.gather(method(b"a"), method(b"b", metadata=[("key", "value")]))
                    stream = channel.stream_stream("/test.Test/Stream")(iter([b"c"]))
                    self.assertEqual([response async for response in stream], [b"c"])
                await method(b"outside")
                return block

        block = _LOOP.run_until_complete(run())
        self.assertEqual(self.blocks(), [(block.id, "2")] * 3 + [(None, None)])
        self.assertEqual(self.workers.metadata[0]["sluice-class"], "queries")

    def test_a_weight_out_of_bounds(self):
        for weight in (0, 65537):
            with self.assertRaisesRegex(ValueError, f"weight {weight} is not a number from 1 to 65536"):
                sluice_rpc.Block(weight)


if __name__ == "__main__":
    unittest.main()

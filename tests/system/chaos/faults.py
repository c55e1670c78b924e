"""The faults of a chaos run. A seed determines which fault begins when, at what, and for how long."""

import dataclasses
import random
import signal
import subprocess

from world import WORKERS

_SETTLE_S = 2  # before the first fault


@dataclasses.dataclass(frozen=True)
class Event:
    at: float  # seconds
    kind: str
    target: str  # a program, or "all"
    seconds: float
    value: float  # 0 to 1, the size of the fault

    def __str__(self):
        return f"{self.at:6.1f} s: {self.kind} {self.target} for {self.seconds:.1f} s"


class Faults:
    """Begins and ends faults. `prepare` makes the rules of the packet filter that some faults need."""

    KINDS = ("kill", "restart", "stop", "descriptors", "partition", "loss", "reset", "slow", "disk_error", "disk_slow",
             "disk_hang", "move", "rotate", "reload", "names")  # fmt: skip
    _OF_WORKERS = ("partition", "loss", "reset", "slow", "disk_error", "disk_slow", "disk_hang", "move")
    _OF_ALL = ("rotate", "reload", "names")

    def __init__(self, world):
        self._world = world

    @staticmethod
    def schedule(seed, seconds, kinds, programs, together):
        """At most one fault at a time has the same target, and at most `together` have any."""
        dice = random.Random(seed)
        events, at, busy = [], _SETTLE_S, {}
        while True:
            at += dice.uniform(0.1, 0.8)
            kind = dice.choice(kinds)
            targets = [f"worker-{i}" for i in range(WORKERS)] if kind in Faults._OF_WORKERS else list(programs)
            target = f"all {kind}" if kind in Faults._OF_ALL else dice.choice(targets)
            duration, value = dice.choice([0.1, 0.5, 2, 7]) * dice.uniform(0.5, 1), dice.random()
            if at + duration > seconds:
                return events
            if busy.get(target, 0) > at or sum(end > at for end in busy.values()) >= together:
                continue
            busy[target] = at + duration
            events.append(Event(at, kind, target, duration, value))

    def prepare(self):
        self._nft("""table ip chaos {
            set partition_set { type ipv4_addr; }
            set loss_set { type ipv4_addr; }
            set reset_set { type ipv4_addr; }
            set slow_set { type ipv4_addr; }
            chain in {
                type filter hook input priority 0;
                ip saddr @partition_set drop
                ip daddr @partition_set drop
                ip saddr @loss_set numgen random mod 100 < 5 drop
                ip daddr @loss_set numgen random mod 100 < 5 drop
                tcp dport { 7000, 9000 } ip daddr @reset_set reject with tcp reset
                ip saddr @slow_set limit rate over 200 kbytes/second burst 30 kbytes drop
            }
        }""")

    @staticmethod
    def _nft(commands):
        subprocess.run(["nft", "-f", "-"], input=commands.encode(), check=True, capture_output=True)

    def begin(self, event):
        getattr(self, f"_begin_{event.kind}")(event)

    def end(self, event):
        getattr(self, f"_end_{event.kind}", lambda _: None)(event)

    def _program(self, event):
        return self._world.programs[event.target]

    @staticmethod
    def _worker(event):
        return int(event.target.rpartition("-")[2])

    def _begin_kill(self, event):
        self._program(event).kill()

    def _end_kill(self, event):
        self._program(event).start()

    def _begin_restart(self, event):
        self._program(event).terminate()

    _end_restart = _end_kill

    def _begin_stop(self, event):
        self._program(event).send(signal.SIGSTOP)

    def _end_stop(self, event):
        self._program(event).send(signal.SIGCONT)

    def _begin_descriptors(self, event):
        self._program(event).limit_descriptors(int(3 * event.value))

    def _end_descriptors(self, event):
        self._program(event).limit_descriptors(None)

    # --- The network.

    def _begin_partition(self, event):
        self._nft(f"add element ip chaos {event.kind}_set {{ {self._world.address(self._worker(event))} }}")

    def _end_partition(self, event):
        self._nft(f"delete element ip chaos {event.kind}_set {{ {self._world.address(self._worker(event))} }}")

    _begin_loss = _begin_reset = _begin_slow = _begin_partition
    _end_loss = _end_reset = _end_slow = _end_partition

    def _begin_move(self, event):
        self._world.move(self._worker(event))

    def _begin_names(self, _event):
        self._world.names.fail(True)

    def _end_names(self, _event):
        self._world.names.fail(False)

    # --- Disks.

    def _begin_disk_error(self, event):
        self._world.set_disk(self._worker(event), -1)

    def _begin_disk_hang(self, event):
        self._world.set_disk(self._worker(event), -2)

    def _begin_disk_slow(self, event):
        self._world.set_disk(self._worker(event), 1 + int(200_000 * event.value))

    def _end_disk_error(self, event):
        self._world.set_disk(self._worker(event), 0)

    _end_disk_hang = _end_disk_slow = _end_disk_error

    # --- Files.

    def _begin_rotate(self, _event):
        self._world.rotate()

    def _begin_reload(self, event):
        self._world.reload(f"{64 + int(400 * event.value)}kb")

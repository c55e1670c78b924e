"""Command line flags that the scripts of the test network share."""

import argparse
import json
import pathlib

from scenario import POLICIES, TAIL_SHARE, LinkScenario, Think
from units import parse_rate_bps, parse_size_bytes, parse_time_us

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def flag(parse):
    """An argparse type for a parser that raises ValueError. argparse shows the message of the error."""

    def convert(text):
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def list_of(known, what):
    def parse(text):
        words = text.split(",")
        for word in words:
            if word not in known:
                raise ValueError(f"{word!r} is not a {what}; there are {', '.join(known)}")
        return words

    return parse


def policies_of(known):
    return list_of(known, "policy")


def count(text):
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a number above 0")
    return int(text)


def milliseconds(text):
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number of milliseconds") from None
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} must be 0 or more")
    return value


def think(text):
    usual, *rest = text.split(",")
    tail_ms = 0.0
    for word in rest:
        if not word.startswith("p99=") or tail_ms:
            raise ValueError(f"{text!r} is not a think time; give one like 10 or 2,p99=200")
        tail_ms = milliseconds(word.removeprefix("p99="))
        if tail_ms <= milliseconds(usual):
            raise ValueError(f"{text!r}: the tail must be longer than the usual time")
    return Think(milliseconds(usual), tail_ms)


def told_buffer(text):
    return 0 if text == "unknown" else parse_size_bytes(text)


def output_file(text):
    path = pathlib.Path(text).resolve()
    if path.is_relative_to("/run"):
        raise ValueError(f"{text}: /run is private to the test network; write elsewhere")
    if not path.parent.is_dir():
        raise ValueError(f"{text}: there is no folder {path.parent}")
    return path


def rates(text):
    return [parse_rate_bps(word) for word in text.split(",")]


def add_link_flags(parser, workers=64, several_rates=False):
    add = parser.add_argument
    add("--workers", type=flag(count), default=workers, metavar="N")
    if several_rates:
        add("--rate", type=flag(rates), metavar="RATE,...", help="rate of the switch port; several run one after the other")
    else:
        add("--rate", type=flag(parse_rate_bps), default=10**8, metavar="RATE", help="rate of the switch port (100mbit)")
    add("--buffer", type=flag(parse_size_bytes), default=32 * 1024, metavar="BYTES", help="buffer of the switch port (32kb)")
    add("--tell-buffer", type=flag(told_buffer), default=None, metavar="BYTES|unknown", help="buffer that Sluice is "
        "configured with; default: the true buffer")  # fmt: skip
    add("--cc", choices=("cubic", "reno", "bbr"), default="cubic", help="TCP congestion control of every host")
    add("--rto-min", type=flag(count), default=200, metavar="MS", help="minimum retransmission timeout of every host (200); "
        "the kernel rounds it up to a multiple of its tick")  # fmt: skip
    add("--quick-acks", action="store_true", help="every host acknowledges each packet at once")
    add("--access-rate", type=flag(parse_rate_bps), default=0, metavar="RATE", help="rate of a machine of workers; "
        "default: ten times the rate of the switch port")  # fmt: skip
    add("--rtt", type=flag(parse_time_us), default=200, metavar="TIME", help="round trip that the model uses (200us)")
    add("--paced", action="store_true", help="of reads: schedule.paced, which needs a long --rtt")


def link_of(flags):
    return LinkScenario(
        workers=flags.workers,
        rate_bps=flags.rate,
        buffer_bytes=flags.buffer,
        congestion_control=flags.cc,
        rto_min_ms=flags.rto_min,
        quick_acks=flags.quick_acks,
        access_rate_bps=flags.access_rate,
        rtt_us=flags.rtt,
        paced=flags.paced,
        told_buffer_bytes=flags.tell_buffer,
    )


def add_load_flags(parser, policies=POLICIES, default_policy="rolling", blocks=20):
    add = parser.add_argument
    add("--policy", type=flag(policies_of(policies)), default=[default_policy], help="one or more of %s, "
        "comma-separated: they run in turns (%s)" % (", ".join(policies), default_policy))  # fmt: skip
    add("--clients", type=flag(count), default=1, metavar="C", help="number of concurrent readers")
    add_block_flags(parser, blocks)


def add_block_flags(parser, blocks=20):
    add = parser.add_argument
    add("--blocks", type=flag(count), default=blocks, metavar="K", help="data blocks that each client reads in the "
        "measured part")  # fmt: skip
    add("--think", type=flag(think), default=Think(), metavar="MS[,p99=MS]", help="workers wait this long before they "
        f"respond; with p99, a random {TAIL_SHARE:.0%}% of the responses takes that long instead")  # fmt: skip
    add("--warmup-blocks", type=flag(count), default=2, metavar="W", help="blocks read before the measured part")
    add("--timeout", type=flag(count), default=1800, metavar="SECONDS", help="maximum time of one run")
    add_run_flags(parser)


def builds(text):
    return [pathlib.Path(word) for word in text.split(",")]


def add_run_flags(parser, several_builds=False):
    add = parser.add_argument
    add("--repeat", type=flag(count), default=1, metavar="R", help="repetitions of every run")
    release = REPOSITORY / "build/release"
    if several_builds:
        add("--build", type=builds, default=[release], metavar="DIR,...", help="folder of the programs "
            "(build/release); several are compared: they run in turns")  # fmt: skip
    else:
        add("--build", type=pathlib.Path, default=release, metavar="DIR", help="folder of the programs (build/release)")
    add("--quiet", action="store_true", help="do not print progress")


def add_json_flag(parser):
    parser.add_argument("--json", type=flag(output_file), metavar="FILE", help="also write the result to this file")


def report(flags, results):
    print(json.dumps(results, indent=2))
    write_json(flags, results)


def write_json(flags, results):
    if flags.json:
        flags.json.write_text(json.dumps(results, indent=2) + "\n")

#!/usr/bin/env python3
"""Tests of the test network: testbed_test.py CASE BUILD. Exits with code 77 and a reason if the machine cannot run it."""

import contextlib
import json
import math
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

_RUN = pathlib.Path(__file__).with_name("run")
_FAN_OUT = _RUN.with_name("fan-out")
_LOOPBACK = _RUN.with_name("loopback")
_INFER = _RUN.with_name("infer")
_ADAPT = _RUN.with_name("adapt")
_ALTERNATIVES = _RUN.with_name("alternatives")
_CALIBRATE = _RUN.with_name("calibrate")
_DIAGNOSE = _RUN.with_name("diagnose")
_TREE = _RUN.with_name("tree")
_SHARE = _RUN.with_name("share")
_PROXY = _RUN.with_name("proxy")
_TUNNELS = _RUN.with_name("tunnels")
_IDLE_TUNNELS = _RUN.with_name("idle-tunnels")
_STOPPED_TUNNELS = _RUN.with_name("stopped-tunnels")
_BAD_WORKERS = _RUN.with_name("bad-workers")
_NEIGHBOURS = _RUN.with_name("neighbours")
_BUILD_CLIENTS = _RUN.parents[2] / "examples/build-clients"
_STOCK_SERVERS = _RUN.parents[2] / "examples/stock-clients/run"
_TOKEN = "SLUICE_TESTBED_TEST"
_SKIP = 77
_FOR_EVER = "--self-check --blocks 100000 --workers 16".split()
_BRIEF = "--workers 8 --blocks 20 --turns 2".split()

_KEYS = """policy workers sru_bytes blocks rate_bps buffer_bytes congestion_control think_ms goodput_bps block_p50_ms
    block_p99_ms switch_drops port_bytes port_packets tcp_timeouts tcp_retransmits rpc_timeouts bad_bytes bottleneck
    model_goodput_bps""".split()


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(_SKIP)


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def finish(process):
    """Returns the output of a run that must succeed. Skips with the run's reason if the machine cannot run the
    network."""
    output, errors = process.communicate()
    if process.returncode == _SKIP:
        skip(errors.split("SKIPPED: ")[-1].strip())
    check(process.returncode == 0, f"exit code {process.returncode}:\n{errors}\n{output}")
    return output


def start(*arguments, before=(), script=_RUN, **options):
    argv = [*before, str(script), *arguments]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def flags(_build):
    for arguments, complaint in (
        (["--policy", "magic"], "'magic' is not a policy"),
        (["--rate", "fast"], "'fast' is not a rate"),
        (["--rate", "0mbit"], "must be above 0"),
        (["--buffer", "32kbit"], "'32kbit' is not a size"),
        (["--workers", "0"], "'0' is not a number above 0"),
        (["--think", "-1"], "must be 0 or more"),
        (["--think", "long"], "'long' is not a number of milliseconds"),
        (["--think", "2,p95=200"], "'2,p95=200' is not a think time"),
        (["--think", "2,p99=1"], "the tail must be longer"),
        (["--json", "/no/such/folder/result.json"], "no folder"),
        (["--tell-buffer", "much"], "'much' is not a size"),
    ):
        refuses(arguments, complaint)
    refuses(["--buffer", "32kbit"], "'32kbit' is not a size", _CALIBRATE)
    refuses(["--aggregators", "201"], "at most 200", _TREE)
    for arguments, complaint in (
        (["--policy", "magic"], "'magic' is not a policy"),
        (["--response", "2:1"], "'2:1': give a size"),
        (["--hedge-after", "5"], "--hedge-after needs --replicas"),
        (["--hedge-after", "5", "--replicas", "1", "--policy", "hand-written"], "knows no --hedge-after"),
    ):
        refuses(arguments, complaint, _FAN_OUT)
    for arguments, complaint in (
        (["--phases", "64kb"], "'64kb': give a buffer and a number of chunks"),
        (["--phases", "64kb:0"], "'0' is not a number above 0"),
        (["--phases", "64kb:1,32kb"], "'32kb': give"),
    ):
        refuses(arguments, complaint, _ADAPT)
    for arguments, complaint in (
        (["--weights", "3:x"], "'3:x' is not a list of weights"),
        (["--weights", "0"], "a weight is 0.001 to 1000"),
        (["--fault", "fire"], "invalid choice: 'fire'"),
    ):
        refuses(arguments, complaint, _SHARE)


    for arguments, complaint in (
        (["--mode", "direct,sideways"], "'sideways' is not a mode; there are direct, proxy"),
        (["--client", "cobol"], "'cobol' is not a client"),
        (["--policy", "batches"], "invalid choice: 'batches'"),
    ):
        refuses(arguments, complaint, _PROXY)
    for arguments, complaint in (
        (["--scenario", "dead,drunk"], "'drunk' is not a scenario; there are slow-once, slow-again, dead"),
        (["--way", "sideways"], "'sideways' is not a way; there are library, proxy"),
        (["--variant", "good"], "'good' is not a variant; there are alone, healthy, bad"),
        (["--pause", "0"], "'0' must be above 0"),
        (["--loss", "50"], "'50' must be below 50 percent"),
    ):
        refuses(arguments, complaint, _BAD_WORKERS)
    for arguments, complaint in (
        (["--neighbour", "none,loud"], "'loud' is not a neighbour; there are none, cubic-1, cubic-4"),
        (["--policy", "batches"], "'batches' is not a policy; there are unscheduled, rolling, grants"),
        (["--policy", "hand-written", "--way", "proxy"], "--policy hand-written needs --way library"),
        (["--seconds", "0.5"], "'0.5' must be 1 or more"),
        (["--neighbour", "none,on-off", "--seconds", "5"], "on-off needs --seconds above 5"),
    ):
        refuses(arguments, complaint, _NEIGHBOURS)
    refuses(["--scenario", "incast,drunk"], "'drunk' is not a scenario; there are incast, computing, small", _DIAGNOSE)


def refuses(arguments, complaint, script=_RUN):
    process = start(*arguments, script=script)
    _, errors = process.communicate()
    check(process.returncode == 2 and complaint in errors, f"{arguments}: {process.returncode}: {errors}")


def network_collapses(_build):
    all_at_once, few_at_once = json.loads(finish(start("--self-check", "--blocks", "10")))
    check(all_at_once["congestion_control"] == few_at_once["congestion_control"] == "cubic", "CUBIC was not read back")
    check(few_at_once["peak_backlog_bytes"] <= 32 * 1024, "the buffer holds more than it was given")


def two_at_once(_build):
    # The rate is low so that the two networks do not compete for the CPU. At an even lower rate, a full buffer delays
    # acknowledgements so much that TCP sends tail loss probes into it.
    runs = [start("--self-check", "--blocks", "3", "--rate", "50mbit") for _ in range(2)]
    for run in runs:
        finish(run)


def without_root(_build):
    run = ["--self-check", "--blocks", "3"]
    if os.geteuid() != 0:
        finish(start(*run))
        return
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if not shutil.which(nobody[0]):
        skip("there is no setpriv; it is in Debian's package util-linux")
    # A copy, because this user may not be able to read the repository.
    with tempfile.TemporaryDirectory() as folder:
        script = shutil.copytree(_RUN.parent, pathlib.Path(folder) / "testbed") / _RUN.name
        subprocess.run(["chmod", "--recursive", "a+rX", folder], check=True)
        finish(start(*run, before=nobody, script=script, cwd="/"))


def reads(build):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "result.json"
        arguments = "--policy unscheduled,rolling --workers 16 --sru 10kb --blocks 5 --clients 2 --quiet".split()
        printed = finish(start(*arguments, "--build", build, "--json", str(file)))
        check(json.loads(printed) == json.loads(file.read_text()), "what is printed is not what is written")
    plain, rolling = json.loads(printed)
    for result in (plain, rolling):
        missing = [key for key in _KEYS if key not in result]
        check(not missing, f"{result['policy']}: no {missing} in the result")
        check(result["bad_bytes"] == 0 and result["errors"] == 0, f"{result['policy']}: bad data: {result}")
        check(result["blocks_read"] == 2 * 5, f"{result['policy']}: {result['blocks_read']} blocks of 10 were read")
        check(0 < result["goodput_bps"] <= result["rate_bps"], f"goodput {result['goodput_bps']} over the link's rate")
        check(result["peak_backlog_bytes"] <= result["buffer_bytes"], "the buffer holds more than it was given")
        for name in ("retransmits", "timeouts", "loss_probes", "lost_retransmits", "spurious_timeouts"):
            exported, counted = result[f"exported_{name}"], result[f"tcp_{name}"]
            check(exported == counted, f"workers export {exported} {name}, their kernels counted {counted}")
    check(plain["tcp_retransmits"] > 0 and plain["inferred_losses"] > 0, f"no losses are seen: {plain}")
    check(plain["policy"] == "unscheduled" and plain["switch_drops"] > 0, f"no drops when all answer at once: {plain}")
    check(rolling["policy"] == "rolling" and rolling["switch_drops"] == 0, f"a schedule that drops: {rolling}")
    check(rolling["tcp_timeouts"] == 0, f"a schedule with timeouts: {rolling}")


def infers_losses(build):
    arguments = "--workers 32 --blocks 6 --quiet".split()
    result = json.loads(finish(start(*arguments, "--build", build, script=_INFER)))
    check(result["lost"] > 20, f"nothing to infer: {result}")
    check(result["found"] >= 0.9 * result["lost"], f"losses are not found: {result}")
    check(result["false"] <= 0.1 * result["inferred"], f"what is not lost is taken for lost: {result}")


def tells_slow_workers_from_losses(build):
    arguments = "--policy rolling --workers 32 --blocks 8 --think 2,p99=300 --quiet".split()
    result = json.loads(finish(start(*arguments, "--build", build, script=_INFER)))
    # A busy machine may make workers late: allow a tenth of the slow responses, of which there are about 13.
    check(result["rto_waits"] <= result["tcp_timeouts"] + 1, f"slow workers are taken for losses: {result}")


def adapts(build):
    arguments = "--workers 32 --tell-buffer 64kb --phases 64kb:1,16kb:8 --blocks 20 --quiet".split()
    result = json.loads(finish(start(*arguments, "--build", build, script=_ADAPT)))
    before, *after = result["chunks"]
    check(before["budget_bytes"] == 64 * 1024, f"the budget is not the buffer: {before}")
    check(after[-1]["budget_bytes"] <= 32 * 1024, f"the budget did not follow the buffer: {result}")
    check(after[-1]["tcp_timeouts"] == 0, f"still timeouts at the end: {result}")
    check(any("decision=back_off" in line for line in result["decisions"]), f"nothing was decided: {result}")


# Checks bounds that also hold on a busy machine: shares are near the weights, and nothing is dropped.
# research/measurements.md has the figures of a quiet machine.
def shares(build):
    arguments = "--weights 3:1 --busy 2 --rate 50mbit --workers 8 --quiet".split()
    result = json.loads(finish(start(*arguments, "--build", build, script=_SHARE)))
    check(result["busy"]["tcp_timeouts"] == 0, f"timeouts: {result['busy']}")
    check(all(0.75 < share < 1.25 for share in result["busy"]["share_over_weight"]), f"shares: {result['busy']}")
    check(result["after"]["whole_link_after_ms"] is not None, f"one alone has not got the link: {result['after']}")
    check(result["after"]["share_of_alone"] > 0.8, f"one alone has little of the link: {result}")
    killed = json.loads(finish(start(*arguments, "--fault", "kill-client", "--build", build, script=_SHARE)))
    check(killed["after"]["recovery_ms"] is not None, f"the budget of a process that was killed is lost: {killed}")
    check(killed["after"]["tcp_timeouts"] <= 2, f"timeouts after the kill: {killed['after']}")


def stragglers(build):
    arguments = "--policy grants --workers 16 --blocks 10 --think 2,p99=200 --quiet".split()
    result = json.loads(finish(start(*arguments, "--build", build)))
    check(result["think_tail_ms"] == 200 and result["think_tail_share"] == 0.05, f"another tail: {result}")
    # The chance that none of 160 responses is in the tail is 0.0003.
    slow = sum(milliseconds >= 200 for milliseconds in result["block_ms"])
    check(slow > 0, f"no block waited for a straggler: {result['block_ms']}")
    check(min(result["block_ms"]) >= 2, f"a block came before its workers had thought: {result['block_ms']}")
    check(result["switch_drops"] == 0 and result["errors"] == 0, f"drops or errors: {result}")


def fans_out(build):
    arguments = "--policy hand-written,default --workers 16 --blocks 40 --clients 2 --quiet".split()
    by_hand, default = json.loads(finish(start(*arguments, "--build", build, script=_FAN_OUT)))
    for result in (by_hand, default):
        _check_fan_out(result, calls=2 * 40 * 16)
    check(by_hand["switch_drops"] > 0, f"no drops when all answer at once: {by_hand}")
    check(default["switch_drops"] == 0 and default["tcp_timeouts"] == 0, f"a schedule that drops: {default}")


def fans_out_to_python(build):
    arguments = "--server python --workers 8 --blocks 40 --response 200:20000 --unknown-sizes --quiet".split()
    arguments += "--think 2,p99=50 --replicas 1 --hedge-after 10".split()
    _check_fan_out(json.loads(finish(start(*arguments, "--build", build, script=_FAN_OUT))), calls=40 * 8)


def _check_fan_out(result, calls):
    what = f"{result['policy']}: {result}"
    check(result["errors"] == 0, f"errors: {what}")
    check(result["calls"] == calls, f"not {calls} calls: {what}")
    check(result["cpu_seconds"] > 0 and result["workers_cpu_seconds"] > 0, f"no processor time: {what}")
    # The port also carried headers, so the payload must be smaller than its bytes, and below the link's rate.
    check(result["bytes"] < result["port_bytes"], f"more came than was sent: {what}")
    check(0 < result["goodput_bps"] <= result["rate_bps"], f"goodput over the link's rate: {what}")


def stock_clients(build):
    """Clients collapse where the library does not, and several clients may run at once."""
    _build_clients("go", "python")
    arguments = "--client go,python --workers 32 --blocks 10 --quiet --build".split()
    go, python, library = json.loads(finish(start("--mode", "direct,library", *arguments, build, script=_PROXY)))
    for result, client in ((go, "go"), (python, "python")):
        _check_stock_clients(result, client, blocks=10)
        check(result["switch_drops"] > 0 and result["tcp_retransmits"] > 0, f"no drops when all answer at once: {result}")
    check(library["mode"] == "library" and library["errors"] == 0, f"errors: {library}")
    check(library["switch_drops"] == 0 and library["tcp_timeouts"] == 0, f"a schedule that drops: {library}")
    together = json.loads(finish(start("--mode", "direct", "--together", *arguments, build, script=_PROXY)))
    _check_stock_clients(together, "go+python", blocks=20)
    check(set(together["clients"]) == {"go", "python"}, f"not a report of each client: {together}")


def proxies(build):
    """The same clients lose nothing through sluice-proxy, whether or not they address it themselves, and for several
    clients at once."""
    _build_clients("go", "python")
    arguments = "--client go,python --workers 32 --blocks 10 --quiet --build".split()
    modes = ("proxy", "proxy-prior-knowledge")
    results = json.loads(finish(start("--mode", ",".join(modes), *arguments, build, script=_PROXY)))
    runs = [(mode, client) for mode in modes for client in ("go", "python")]
    for result, (mode, client) in zip(results, runs, strict=True):
        _check_stock_clients(result, client, blocks=10, mode=mode)
    together = json.loads(finish(start("--mode", "proxy", "--together", *arguments, build, script=_PROXY)))
    _check_stock_clients(together, "go+python", blocks=20, mode="proxy")
    for result in (*results, together):
        check(result["switch_drops"] == 0 and result["tcp_timeouts"] == 0, f"a schedule that drops: {result}")


def tunnels(build):
    """TLS that the proxy cannot read collapses if it is only forwarded, and does not if its tunnels take turns, or if the
    client uses streams of the library."""
    arguments = ["--mode", "forwarded,scheduled,library", "--tls", "--workers", "64", "--blocks", "8", "--quiet", "--build", build]
    forwarded, *with_turns = json.loads(finish(start(*arguments, script=_TUNNELS)))
    check(forwarded["mode"] == "forwarded" and forwarded["switch_drops"] > 100, f"no collapse: {forwarded}")
    for mode, scheduled in zip(("scheduled", "library"), with_turns, strict=True):
        check(scheduled["mode"] == mode and scheduled["blocks_read"] == 8, f"another run: {scheduled}")
        check(scheduled["goodput_bps"] > 2 * forwarded["goodput_bps"], f"no better: {scheduled} than {forwarded}")
        check(scheduled["switch_drops"] < forwarded["switch_drops"] / 20, f"a schedule that drops: {scheduled}")
    # Responses of any size leave less than a packet of a window, which must move nevertheless.
    arguments = ["--mode", "scheduled", "--alone", "--response", "10kb", "--most", "64kb", "--workers", "96"]
    sizes = json.loads(finish(start(*arguments, "--blocks", "5", "--quiet", "--build", build, script=_TUNNELS)))
    check(sizes["goodput_bps"] > forwarded["rate_bps"] / 2, f"sizes that stop the windows: {sizes}")


def idle_tunnels(build):
    """Idle tunnels take little memory, and nothing from the tunnels beside them."""
    arguments = ["--tunnels", "500", "--idle", "2", "--blocks", "8", "--quiet", "--build", build]
    result = json.loads(finish(start(*arguments, script=_IDLE_TUNNELS)))
    check(0 < result["kb_per_tunnel"] < 20, f"the memory of a tunnel: {result}")
    check(result["descriptors_per_tunnel"] == 2, f"the descriptors of a tunnel: {result}")
    before, after = result["proxy_kb_with_tunnels"][0], result["proxy_kb_after_close"][-1]
    check(after < 1.2 * before, f"the memory grows with each tunnel that was closed: {result}")
    check(result["beside_idle_tunnels"]["goodput_bps"] > result["rate_bps"] / 4, f"no goodput beside them: {result}")


def stopped_tunnels(build):
    """A client and a server that stop lose nothing, and cost the others nothing."""
    result = json.loads(finish(start("--stopped", "2", "--blocks", "8", "--quiet", "--build", build, script=_STOPPED_TUNNELS)))
    check(all(client["wrong_pieces"] == 0 for client in result["clients"].values()), f"wrong bytes: {result}")
    for when in ("soon", "at the end", "after"):
        check(result["others"][when]["goodput_bps"] > result["rate_bps"] / 4, f"the others pay: {result}")


def loopback_compares_relays(build):
    arguments = ["tunnels", "--turns", "1", "--blocks", "10", "--workers", "8", "--build", build]
    result = json.loads(finish(start(*arguments, script=_LOOPBACK)))
    check(list(result["variants"])[-2:] == ["forwarded", "scheduled"], f"other variants: {result}")
    for variant in result["variants"].values():
        check(variant["large_cpu_ms_per_mb"] > 0 and variant["small_mbps"] > 0, f"not measured: {result}")


def stock_servers(build):
    """curl with nginx, and redis-py with a Redis cluster, lose hardly anything through tunnels that take turns."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "runs.json"
        arguments = f"nginx,redis --workers 32 --response 20kb --blocks 5 --warmup-blocks 1 --quiet --json {file} --build".split()
        table = finish(start(*arguments, build, script=_STOCK_SERVERS))
        runs = {(run["case"], run["mode"]): run for run in json.loads(file.read_text())}
    check(len(table.splitlines()) == 5, f"not a row of each:\n{table}")
    for case in ("nginx", "redis"):
        direct, scheduled = runs[case, "direct"], runs[case, "scheduled"]
        check(direct["blocks_read"] == scheduled["blocks_read"] == 5, f"other runs: {direct}, {scheduled}")
        check(direct["switch_drops"] > 100, f"no collapse: {direct}")
        check(scheduled["switch_drops"] < direct["switch_drops"] / 4, f"a schedule that drops: {scheduled}")
    # Each block of curl makes new connections, whose handshakes take most of a slow processor.
    direct, scheduled = runs["redis", "direct"], runs["redis", "scheduled"]
    check(scheduled["goodput_bps"] > 1.5 * direct["goodput_bps"], f"no better: {scheduled} than {direct}")


def _check_stock_clients(result, client, blocks, mode="direct"):
    check(result["mode"] == mode and result["client"] == client, f"another run: {result}")
    check(result["errors"] == 0 and result["blocks_read"] == blocks, f"errors: {result}")
    check(0 < result["goodput_bps"] <= result["rate_bps"], f"goodput over the link's rate: {result}")


def _build_clients(*languages):
    made = subprocess.run([_BUILD_CLIENTS, *languages], stderr=subprocess.PIPE, text=True, check=False)
    if made.returncode == _SKIP:
        skip(made.stderr.strip())
    check(made.returncode == 0, made.stderr)


def alternatives(build):
    """Each alternative changes its own setting, and every run includes the victim flow."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "runs.json"
        arguments = f"--workers 8 --caps 2 --blocks 5 --repeat 1 --quiet --json {file} --build".split()
        table = finish(start(*arguments, build, script=_ALTERNATIVES))
        runs = {run["alternative"]: run for run in json.loads(file.read_text())}
    names = ("nothing", "Reno", "BBR", "RTO_min 5 ms", "RTO_min 5 ms, quick ACKs", "Sluice", "cap of 2")
    check(tuple(runs) == names, f"other alternatives: {list(runs)}")
    check(all(f"| {name} " in table for name in names), f"not a row of each:\n{table}")
    for name, run in runs.items():
        check(run["errors"] == 0 and run["blocks_read"] == 5, f"errors: {run}")
        check(run["victim_answers"] > 0 and 0 < run["victim_p50_ms"] <= run["victim_p99_ms"], f"no victim: {run}")
        check(run["rto_min_ms"] == (5 if "5 ms" in name else 200), f"another RTO_min: {run}")
        check(run["quick_acks"] == ("quick" in name), f"quick ACKs: {run}")
        check(run["in_flight"] == (2 if "cap" in name else 0), f"another cap: {run}")
        check(run["congestion_control"] == (name.lower() if name in ("Reno", "BBR") else "cubic"), f"another: {run}")
    check(runs["Sluice"]["switch_drops"] == 0, f"a schedule that drops: {runs['Sluice']}")


def alternatives_in_an_open_loop(build):
    """Fan-outs arrive at random, for each number of workers: more and smaller fan-outs offer the same load."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "runs.json"
        arguments = f"--only Sluice --workers 4,16 --load 0.3 --caps 2 --blocks 80,20 --repeat 1 --quiet --json {file} --build".split()
        finish(start(*arguments, build, script=_ALTERNATIVES))
        runs = json.loads(file.read_text())
    points = [(run["workers"], run["alternative"]) for run in runs]
    check(points == [(4, "Sluice"), (4, "cap of 2"), (16, "Sluice"), (16, "cap of 2")], f"other runs: {points}")
    for run in runs:
        check(run["errors"] == 0 and run["blocks_read"] * run["workers"] == 320, f"errors: {run}")
        # The arrivals are the same each time, and so few that their load is only near its mean.
        check(1.5e7 <= run["goodput_bps"] <= 4.5e7, f"0.3 of 100 Mbit/s were offered: {run}")
        check(run["block_p50_ms"] <= run["block_p99_ms"] <= run["block_p999_ms"], f"no percentiles: {run}")


def loopback_reads(build):
    _check_ratio(json.loads(finish(start("read", *_BRIEF, "--build", build, script=_LOOPBACK))))


def loopback_fans_out(build):
    _check_ratio(json.loads(finish(start("fan-out", *_BRIEF, "--build", build, script=_LOOPBACK))))


def loopback_calls_through_a_proxy(build):
    """Compares the proxy with a relay that only forwards bytes."""
    result = json.loads(finish(start("proxy", "--turns", "2", "--blocks", "200", "--build", build, script=_LOOPBACK)))
    check(list(result["variants"]) == ["direct", "relay", "proxy"], f"other variants: {result}")
    for variant in result["variants"].values():
        check(0 < variant["p50_us"] <= variant["p99_us"] and variant["goodput_mbps"] > 0, f"not measured: {result}")
    check(result["variants"]["proxy"]["library_cpu_us_per_call"] > 0, f"no library beside it: {result}")


def loopback_compares_tls(build):
    result = json.loads(finish(start("tls", *_BRIEF, "--build", build, script=_LOOPBACK)))
    _check_ratio(result)
    for variant in result["variants"].values():
        parts = [variant[f"{part}_cpu_ms_per_mb"] for part in ("workers", "aggregator", "load")]
        check(all(part >= 0 for part in parts), f"not the processor time of all: {result}")


def _check_ratio(result):
    # The ratio depends on the other load of the machine, and its claimed values hold for a quiet one.
    check(result["turns"] == 2, f"not two turns: {result}")
    baseline, *others = result["variants"].values()
    check(others and baseline["goodput_mbps"] > 0, f"nothing was measured: {result}")
    for variant in others:
        ratio = variant["goodput_mbps_ratio"]
        check(0 < ratio["low"] <= ratio["median"] <= ratio["high"], f"no ratios: {result}")


def calibrates(build):
    """One run is right, or the median of three is: programs that share two CPUs with the switch are delayed now and
    then, and may then fail to determine a figure. At 20 Mbit/s they keep up: at 100 a debug build on a virtual machine
    was 15 % slower than its link."""
    def run(repeat):
        arguments = ["--quiet", "--rate", "20mbit", "--build", build, "--repeat", repeat]
        found = json.loads(finish(start(*arguments, script=_CALIBRATE)))
        return found if isinstance(found, list) else [found]

    def errors(results):
        def off_percent(figure):
            found = [result["error_percent"][figure] for result in results]
            found = [percent for percent in found if percent is not None]
            return abs(statistics.median(found)) if 2 * len(found) > len(results) else math.inf

        # The kernel counts the round trip in microseconds, and it is only about ten.
        ping_us = results[0]["ping_min_us"]
        off_us = statistics.median(abs(1e6 * result["measured"]["rtt_min"] - result["ping_min_us"]) for result in results)
        wrong = {"capacity": off_percent("capacity") > 5, "buffer": off_percent("buffer") > 15,
                 "round trip": off_us > max(0.2 * ping_us, 4), "time": any(r["seconds"] >= 60 for r in results)}
        return [figure for figure, is_wrong in wrong.items() if is_wrong]

    results = run("1")
    if errors(results):
        results += run("2")
    check(not errors(results), f"wrong: {errors(results)}: {results}")


def diagnoses(build):
    """The verdicts are right with incast and without, and nothing but incast is taken for it."""
    for result in _diagnosed(build, "incast,computing,small"):
        lost = result["switch_drops"] / result["switch_packets"]
        check(lost >= 0.01, f"{result['scenario']}: there was no incast to diagnose, {lost:.2%} dropped: {result}")
    for result in _diagnosed(build, "queue") + _diagnosed(build, "room,idle", seconds=3):
        check(result["switch_drops"] == 0, f"{result['scenario']}: a port with room dropped: {result}")
    _diagnosed(build, "grants,tail", seconds=3)  # a short look tells that there is no incast


def diagnoses_one_bad_worker(build):
    for result in _diagnosed(build, "slow,lossy"):
        stalls, worst = result["aggregator"]["stalls"], result["aggregator"]["worst_host"]
        check(stalls < 3 or worst == "10.77.0.2", f"{result['scenario']}: another worker is at fault: {result}")


def _diagnosed(build, scenarios, seconds=6):
    arguments = ["--scenario", scenarios, "--seconds", str(seconds), "--quiet", "--build", build]
    results = json.loads(finish(start(*arguments, script=_DIAGNOSE)))
    results = results if isinstance(results, list) else [results]
    check(",".join(result["scenario"] for result in results) == scenarios, f"other scenarios: {results}")
    return results


def bad_workers(build):
    """Each fault takes effect. Its cost to the others needs a quiet machine and longer runs."""
    runs = _bad_worker_runs(build, "slow-once slow-again dead rack pause slow-merge".split(), "--pause-every", "0.4")
    for name in ("slow-once", "dead"):
        check(runs[name]["groups"]["other"]["fan_outs"] == 0, f"{name}: a bad worker responds: {runs[name]}")
    check(0 < runs["slow-again"]["groups"]["other"]["goodput_bps"] <= 1.1e6, f"not slow: {runs['slow-again']}")
    check(runs["dead"]["connection_attempts"] >= 20, f"dead addresses were not asked: {runs['dead']}")
    check(runs["rack"]["groups"]["other"]["fan_outs"] < 5, f"links were not lost: {runs['rack']}")
    check(len(runs["pause"]["paused_at_s"]) >= 2, f"no pauses: {runs['pause']}")
    check(runs["pause"]["groups"]["other"]["longest_gap_ms"] >= 200, f"the worker went on: {runs['pause']}")
    check(runs["slow-merge"]["groups"]["other"]["goodput_bps"] > 0, f"no stream: {runs['slow-merge']}")


def neighbours(build):
    """The other requests take effect. Their cost needs a quiet machine and longer runs."""
    arguments = "--seconds 2 --warm-up 0.2 --quiet --build".split()

    def run(*flags):
        return json.loads(finish(start(*arguments, build, *flags, script=_BAD_WORKERS)))

    for result in run("--scenario", "neighbours,neighbours-told", "--large", "100kb", "--rate", "50mbit,100mbit"):
        alone, bad = (result["repetitions"][0][variant]["groups"] for variant in ("alone", "bad"))
        check("other" not in alone and bad["other"]["fan_outs"] > 0, f"no scans: {result}")
        check(alone["small"]["fan_outs"] >= 10 and alone["small"]["errors"] == 0, f"no queries: {result}")
        goal_ms = 2.5 * alone["small"]["p99_ms"] + 2
        check(abs(result["medians"]["p99_over_goal"] - bad["small"]["p99_ms"] / goal_ms) < 0.01, f"another goal: {result}")
    (deadlines,) = run("--scenario", "deadlines-told", "--large", "100kb")
    check(len(deadlines["repetitions"][0]["alone"]["groups"]) == 5, f"not five timeouts: {deadlines}")
    (sizes,) = run("--scenario", "sizes", "--large", "100kb")
    check(all(group["fan_outs"] > 0 for group in sizes["repetitions"][0]["bad"]["groups"].values()), f"no scans: {sizes}")
    (streams,) = run("--scenario", "streams", "--seconds", "6", "--rate", "20mbit")
    groups = streams["repetitions"][0]["bad"]["groups"]
    check(groups["small"]["errors"] == groups["other"]["errors"] == 0, f"errors: {streams}")
    check(groups["small"]["goodput_by_second_bps"][1] > 10e6, f"the link is not full: {streams}")
    small_errors, large_errors = run("--scenario", "errors,large-errors")
    for result in (small_errors, large_errors):
        groups = result["repetitions"][0]["bad"]["groups"]
        check(groups["small"]["errors"] == 0 and groups["small"]["fan_outs"] > 0, f"the others fail: {result}")
        check(groups["other"]["errors"] >= 50 and groups["other"]["fan_outs"] == 0, f"no errors: {result}")
    (hung,) = run("--scenario", "hung-many")
    groups = hung["repetitions"][0]["bad"]["groups"]
    check(groups["small"]["fan_outs"] > 0 and groups["other"]["fan_outs"] == 0, f"no call hangs: {hung}")


def neighbours_in_go(build):
    _build_clients("go")
    arguments = "--scenario neighbours --way go,direct --large 100kb --seconds 2 --quiet --build".split()
    results = json.loads(finish(start(*arguments, build, script=_BAD_WORKERS)))
    check([result["way"] for result in results] == ["go", "direct"], f"other ways: {results}")
    for result in results:
        run = result["repetitions"][0]["bad"]
        check(run["groups"]["small"]["fan_outs"] >= 10 and run["groups"]["small"]["errors"] == 0, f"no queries: {result}")
        check(run["groups"]["other"]["fan_outs"] > 0, f"no scans: {result}")
        check(bool(run["budget_bytes"]) == (result["way"] == "go"), f"not the way: {result}")


def port_neighbours(build):
    """Each neighbour sends at its rate. Its cost to the fan-outs needs a quiet machine and longer runs."""
    names = "none cubic-1 reno-4 udp-20 bursts sluice grpc".split()
    runs = _beside(build, names, "--policy", "grants")
    runs |= _beside(build, ["on-off"], "--policy", "grants", "--seconds", "6")
    check("neighbour_goodput_bps" not in runs["none"], f"a neighbour: {runs['none']}")
    for name, run in [*runs.items()][1:]:
        # Even beside a neighbour the port carries no more than its rate.
        together_bps = run["groups"]["small"]["goodput_bps"] + run["neighbour_goodput_bps"]
        check(0 < run["neighbour_goodput_bps"] and together_bps <= 21e6, f"{name}: not through the port: {run}")
        check(run["groups"]["small"]["fan_outs"] > 0, f"{name}: no fan-outs: {run}")
    check(2e6 <= runs["udp-20"]["neighbour_goodput_bps"] <= 4.4e6, f"not 20 % of the port: {runs['udp-20']}")
    check(runs["cubic-1"]["neighbour_goodput_bps"] > 5e6, f"no bulk flow: {runs['cubic-1']}")
    check(runs["bursts"]["neighbour_goodput_bps"] <= 10e6, f"not bursts: {runs['bursts']}")


def overtaken_packets(build):
    (run,) = _beside(build, ["overtaken-3"], "--policy", "unscheduled", "--workers", "2").values()
    check(run["late_packets"] > 0 and run["dropped_packets"] == 0, f"not only late: {run}")


def _beside(build, names, *flags):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "result.json")
        arguments = "--rate 20mbit --response-bytes 10kb --seconds 2 --warm-up 0.2 --quiet --neighbour".split()
        arguments += [",".join(names), "--build", build, "--json", str(file), *flags]
        table = finish(start(*arguments, script=_NEIGHBOURS)).splitlines()
        (result,) = json.loads(file.read_text())
    check([line.split(" ")[1] for line in table[2:]] == names, f"another table: {table}")
    return result["repetitions"][0]


def bad_path(build):
    run = _bad_worker_runs(build, ["lossy"], "--loss", "2", "--reorder", "2")["lossy"]
    check(run["dropped_packets"] > 0 and run["late_packets"] > 0, f"the path is good: {run}")
    check(run["tcp_retransmits"] >= run["dropped_packets"] / 2, f"packets were not lost: {run}")
    check(run["groups"]["other"]["fan_outs"] > 0, f"nothing gets through: {run}")


def _bad_worker_runs(build, scenarios, *flags):
    arguments = "--workers 8 --dead 20 --seconds 1 --warm-up 0.2 --variant bad --quiet".split()
    arguments += ["--scenario", ",".join(scenarios), "--build", build, *flags]
    results = json.loads(finish(start(*arguments, script=_BAD_WORKERS)))
    check([result["scenario"] for result in results] == scenarios, f"other scenarios: {results}")
    runs = {result["scenario"]: result["repetitions"][0]["bad"] for result in results}
    for name, run in runs.items():
        small = run["groups"]["small"]
        check(small["errors"] == 0, f"{name}: the others fail: {small}")
        check(0 < small["p50_ms"] <= small["p99_ms"], f"{name}: no times: {small}")
        check(run["budget_bytes"] and 0 < run["budget_held_share"] <= 1, f"{name}: no budget: {run}")
        check(run["resident_mb"] > 0, f"{name}: no memory: {run}")
    return runs


def bad_workers_through_a_proxy(build):
    """Also checks the controls and the demands, and runs over TLS."""
    arguments = "--scenario slow-once --way proxy --workers 8 --seconds 1 --warm-up 0.2 --quiet --transport tls".split()
    arguments += ["--large", "400000", "--build", build]
    (result,) = json.loads(finish(start(*arguments, script=_BAD_WORKERS)))
    runs = result["repetitions"][0]
    check(list(runs) == ["alone", "healthy", "bad"], f"other variants: {result}")
    check("other" not in runs["alone"]["groups"], f"the control is not alone: {result}")
    check(runs["healthy"]["groups"]["other"]["fan_outs"] == 1, f"the healthy worker does not respond: {result}")
    check(runs["bad"]["groups"]["other"]["fan_outs"] == 0, f"the slow worker is not slow: {result}")
    for run in runs.values():
        check(run["groups"]["small"]["errors"] == 0, f"the others fail: {run}")
        check(run["proxy_cpu_seconds"] > 0 and run["budget_bytes"], f"not through the proxy: {run}")
    ratio = runs["bad"]["groups"]["small"]["goodput_bps"] / runs["healthy"]["groups"]["small"]["goodput_bps"]
    check(abs(result["medians"]["goodput_over_healthy"] - ratio) < 0.01, f"not the ratio of the runs: {result}")
    check([demand["figure"] for demand in result["demands"]] == ["goodput_over_healthy", "p99_over_healthy"], f"{result}")


def infers_timeouts_of_a_collapse(build):
    """A schedule causes no timeouts, and an overflow causes some. Sluice must infer both results."""
    arguments = "--scenario proxy-rto --policy unscheduled --seconds 2 --warm-up 0.2 --quiet".split()
    (result,) = json.loads(finish(start(*arguments, "--build", build, script=_BAD_WORKERS)))
    healthy, bad = (result["repetitions"][0][variant] for variant in ("healthy", "bad"))
    check(healthy["tcp_timeouts"] == healthy["inferred_rto_waits"] == 0, f"timeouts with a schedule: {healthy}")
    check(bad["tcp_timeouts"] > 0 and bad["inferred_rto_waits"] > 0, f"no collapse: {bad}")


def tree(build):
    arguments = "--aggregators 2 --workers 8 --machines 2 --blocks 20 --quiet".split()
    result = json.loads(finish(start(*arguments, "--build", build, script=_TREE)))
    check(result["errors"] == 0 and result["bad_bytes"] == 0, f"errors or bad data: {result}")
    check(result["blocks_read"] == 20, f"not 20 blocks: {result}")
    check(result["switch_drops"] == 0 and result["tcp_timeouts"] == 0, f"a schedule that drops: {result}")
    hla, mla = result["levels"]
    check((len(hla["ports"]), len(mla["ports"])) == (1, 2), f"not a port for each aggregator: {result}")
    wanted = 20 * 2 * 8 * 10240
    check(hla["ports"][0]["goodput_bytes"] == wanted, f"the HLA counts other bytes than {wanted}: {result}")
    for port in mla["ports"]:
        # Each MLA reads its half, plus or minus the bytes that it read ahead before or after.
        check(0.8 * wanted / 2 <= port["goodput_bytes"] <= 1.2 * wanted / 2, f"an MLA read something else: {result}")


def _ends(signum, exit_code, *arguments, script=_RUN):
    with contextlib.ExitStack() as stack:
        token = uuid.uuid4().hex
        process = start(*arguments, script=script, env={**os.environ, _TOKEN: token})
        stack.callback(process.kill)
        # Two processes outside, one inside and eight senders mean that the network is up.
        if not _wait_until(lambda: len(_processes_with(token)) >= 10 or process.poll() is not None, 60):
            sys.exit("FAILED: the network did not come up")
        if process.poll() is not None:
            finish(process)
            sys.exit("FAILED: the run ended before it was stopped")
        process.send_signal(signum)
        process.communicate(timeout=20)
        check(process.returncode == exit_code, f"exit code {process.returncode} where {exit_code} was due")
        gone = _wait_until(lambda: not _processes_with(token), 10)
        check(gone, f"processes outlive the run: {_processes_with(token)}")


def ends_with_interrupt(_build):
    _ends(signal.SIGINT, 130, *_FOR_EVER)


def ends_with_terminate(_build):
    _ends(signal.SIGTERM, 143, *_FOR_EVER)


def ends_when_killed(_build):
    _ends(signal.SIGKILL, -9, *_FOR_EVER)


def fan_out_ends_with_interrupt(build):
    arguments = "--blocks 100000 --workers 16 --build".split()
    _ends(signal.SIGINT, 130, *arguments, build, script=_FAN_OUT)


def neighbours_end_with_interrupt(build):
    arguments = "--neighbour cubic-1 --seconds 1000 --workers 16 --build".split()
    _ends(signal.SIGINT, 130, *arguments, build, script=_NEIGHBOURS)


def _wait_until(condition, timeout_s):
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _processes_with(token):
    """Returns the ids of the processes that have the token in their environment. Zombies have no environment."""
    wanted = f"{_TOKEN}={token}".encode()
    found = []
    for environment in pathlib.Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
    return found


_CASES = (flags, network_collapses, two_at_once, without_root, reads, infers_losses, tells_slow_workers_from_losses,
          adapts, shares, tree, stragglers, fans_out, fans_out_to_python, stock_clients, proxies, tunnels,
          idle_tunnels, stopped_tunnels, stock_servers, alternatives,
          alternatives_in_an_open_loop, bad_workers, neighbours, neighbours_in_go, port_neighbours, overtaken_packets,
          bad_path, bad_workers_through_a_proxy, infers_timeouts_of_a_collapse, loopback_reads, loopback_fans_out,
          loopback_calls_through_a_proxy, loopback_compares_relays, loopback_compares_tls, calibrates, diagnoses, diagnoses_one_bad_worker,
          ends_with_interrupt, ends_with_terminate, ends_when_killed, fan_out_ends_with_interrupt,
          neighbours_end_with_interrupt)  # fmt: skip

if __name__ == "__main__":
    {case.__name__: case for case in _CASES}[sys.argv[1]](sys.argv[2])

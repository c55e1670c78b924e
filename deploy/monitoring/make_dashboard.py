#!/usr/bin/env python3
"""Prints the Grafana dashboard: make_dashboard.py > grafana-dashboard.json. A test compares the two.

The file is in git, because `kubectl apply -k deploy/overlays/monitoring` reads it and cannot run a program."""

import json
import sys

sys.dont_write_bytecode = True

from grafana import DATASOURCE, heatmap, lines, placed, row, stat  # noqa: E402

# PromQL for the aggregators and the workers that are selected at the top.


def _selector(metric, instances, labels):
    matchers = [f'instance=~"{instances}"', *(f'{label}="{value}"' for label, value in labels.items())]
    return f"{metric}{{{', '.join(matchers)}}}"


def aggregator(metric, **labels):
    return _selector(metric, "$instance", labels)


def worker(metric, **labels):
    return _selector(metric, "$worker", labels)


def sharing(metric):
    return _selector(metric, "$link", {})


def process(metric):
    return f'{metric}{{job=~"sluice-.*", instance=~"$instance|$worker"}}'


def rate(selector):
    return f"rate({selector}[$__rate_interval])"


def quantile(share, histogram):
    """Returns the quantile of a histogram of the aggregators."""
    return f"histogram_quantile({share}, {rate(aggregator(histogram + '_bucket'))})"


def highest(expression):
    """Limits the series to the ten highest, because there may be a thousand workers."""
    return f"topk(10, {expression})"


def buckets(histogram):
    return f"sum by (le) (increase({aggregator(histogram + '_bucket')}[$__rate_interval]))"


def mean(histogram):
    return f"{rate(aggregator(histogram + '_sum'))} / {rate(aggregator(histogram + '_count'))}"


def quantiles(histogram):
    return [(quantile(share, histogram), f"p{round(100 * share)} {{{{instance}}}}") for share in (0.5, 0.9, 0.99)]


# The rows of the dashboard, from the callers' view down to possible causes.


def _overview():
    always_green = [(None, "green")]
    return [
        row("Overview"),
        stat("Goodput", "Bps", "Payload bytes handed to the application, over 5 minutes.",
             aggregator("instance:sluice_goodput_bytes:rate5m"), always_green),
        stat("Use of the link", "percentunit", "Goodput over capacity. 94 % is about the most with an MTU of 1500.",
             aggregator("instance:sluice_link_utilisation:ratio_rate5m"), always_green),
        stat("Blocks that are complete", "percentunit", "The service level: of all blocks that clients did not give up.",
             aggregator("instance:sluice_blocks_complete:ratio_rate5m"), [(None, "red"), (0.99, "green")]),
        stat("Block time, p99", "s", "Of 5 minutes. 0.2 s and more above p50: TCP retransmission timeouts.",
             aggregator("instance:sluice_block_seconds:p99_rate5m"), always_green),
        stat("SRUs that a TCP timeout delayed", "percentunit", "Inferred by the aggregator. From 0.1 % on, incast.",
             aggregator("instance_kind:sluice_timeouts_per_call:ratio_rate5m", kind="tcp_rto"),
             [(None, "green"), (0.001, "red")]),
        stat("Alerts that fire", "short", "Those of alert-rules.yml. docs/runbooks has a page for each.",
             'count(ALERTS{alertname=~"Sluice.*", alertstate="firing"}) or vector(0)', [(None, "green"), (1, "red")],
             legend="alerts"),
    ]  # fmt: skip


def _goodput():
    return [
        row("Goodput"),
        lines("Goodput, link capacity and prediction", "Bps",
              "What arrives, what the link carries with its headers, as configured and as measured at most, and what the "
              "model predicts for the plan in force. "
              "Far below the prediction while requests wait: slow workers, losses, or a processor that is busy.",
              [(f"sum without (worker_kind) ({rate(aggregator('sluice_goodput_bytes_total'))})", "goodput {{instance}}"),
               (aggregator("sluice_link_capacity_bytes_per_second"), "capacity {{instance}}"),
               (aggregator("sluice_link_measured_capacity_bytes_per_second"), "measured {{instance}}"),
               (aggregator("sluice_plan_goodput_bytes_per_second"), "plan {{instance}}")], width=12),
        lines("Goodput as a share", "percentunit", "Of the capacity of the link, and of what the model predicts. Idle: while requests wait.",
              [(aggregator("instance:sluice_link_utilisation:ratio_rate5m"), "use of link {{instance}}"),
               (aggregator("instance:sluice_goodput_of_plan:ratio_rate5m"), "of plan {{instance}}"),
               (rate(aggregator("sluice_link_idle_seconds_total")), "idle while requests wait {{instance}}")], width=12),
        lines("Goodput by kind of worker", "Bps", "Much from replicas: workers are down, slow or corrupt.",
              [(rate(aggregator("sluice_goodput_bytes_total")), "{{worker_kind}} {{instance}}")], stacked=True),
        lines("Blocks by outcome", "ops", "Anything but complete and cancelled is a caller without its block.",
              [(rate(aggregator("sluice_blocks_total")), "{{outcome}} {{instance}}")], stacked=True),
        lines("SRU requests by outcome", "reqps", "What became of the single requests; replicas and retries hide most.",
              [(rate(aggregator("sluice_calls_total")), "{{outcome}} {{instance}}")], stacked=True),
    ]  # fmt: skip


def _budget():
    return [
        row("In flight, and the budget"),
        lines("In flight and the budget", "bytes",
              "What may be on its way, and what is. Floor and limit are the operator's; where they are equal, the budget "
              "is fixed. The ceiling is the size at which losses were last seen.",
              [(aggregator("sluice_in_flight_bytes"), "in flight {{instance}}"),
               (aggregator("sluice_budget_bytes"), "budget {{instance}}"),
               (aggregator("sluice_budget_floor_bytes"), "floor {{instance}}"),
               (aggregator("sluice_budget_limit_bytes"), "limit {{instance}}"),
               (aggregator("sluice_budget_ceiling_bytes") + " > 0", "ceiling {{instance}}")], width=12),
        lines("Decisions on the budget, per minute", "short",
              "A back-off now and then, after a probe, is how the budget finds its size. More of them: somebody else "
              "fills the buffer.",
              [(f"60 * {rate(aggregator('sluice_budget_decisions_total'))}", "{{decision}} {{instance}}")], width=12),
        lines("Use of the budget", "percentunit",
              "Mean of 5 minutes. Low while calls wait: an SRU does not fit what is left.",
              [(aggregator("instance:sluice_budget_use:ratio_avg5m"), "use {{instance}}")]),
        lines("Requests that are out", "short",
              "In flight: their answers may come. Ungranted: sent, and waiting for a grant.",
              [(aggregator("sluice_in_flight_calls"), "in flight {{instance}}"),
               (aggregator("sluice_ungranted_calls"), "ungranted {{instance}}")]),
        lines("Responses that wait at workers", "bytes",
              "Ready, and waiting for a grant. Requests wait while these bytes are at their bound, schedule.ready_bytes.",
              [(aggregator("sluice_ready_bytes"), "ready {{instance}}")]),
        lines("Workers that may answer at once", "short",
              "n of the plan, and the packets that one of them may have in the buffer.",
              [(aggregator("sluice_plan_batch_workers"), "workers {{instance}}"),
               (aggregator("sluice_plan_wnd_max_packets"), "packets of one {{instance}}")]),
    ]  # fmt: skip


def _queue():
    return [
        row("Queue and waits"),
        lines("Queue", "short", "Near queue_limit, blocks are refused.",
              [(aggregator("sluice_queued_calls"), "calls {{instance}}"),
               (aggregator("sluice_stream_waiting_calls"), "calls that wait for a stream {{instance}}"),
               (aggregator("sluice_queued_blocks"), "blocks {{instance}}")], width=6),
        lines("Wait in the queue", "s", "The price of scheduling: most of the block time of a busy link.",
              quantiles("sluice_queue_wait_seconds"), width=6),
        lines("Time until an answer is ready", "s", "How long workers think (grants only). hedge_after goes by this.",
              quantiles("sluice_ready_seconds"), width=6),
        lines("Lateness of timers", "s", "p99 is the value for link.jitter. Milliseconds: the host is short of processors.",
              quantiles("sluice_timer_lateness_seconds"), width=6),
        lines("Responses that wait for the application", "bytes",
              "Bytes that wait for merge. At half of callback_memory_bytes or more, merge is slower than the link.",
              [(aggregator("sluice_callback_bytes"), "waiting {{instance}}")]),
        lines("Responses that are held for the application", "ops",
              "They wait at their workers, because callback_memory_bytes is in use.",
              [(rate(aggregator("sluice_callback_holds_total")), "held {{instance}}")]),
        lines("Blocks that cannot make their deadline", "ops",
              "They give way to others. More load than the link carries, or deadlines too short for the size of the blocks.",
              [(rate(aggregator("sluice_late_blocks_total")), "late {{instance}}")]),
    ]  # fmt: skip


def _observed():
    responses = rate(aggregator("sluice_observed_responses_total"))
    return [
        row("Without a schedule: what it would change"),
        lines("Goodput, and goodput with a schedule", "Bps",
              "Policy unscheduled. The second line is for callers that wait for one fan-out before the next.",
              [(rate(aggregator("sluice_observed_response_bytes_total")), "observed {{instance}}"),
               (f"{rate(aggregator('sluice_observed_response_bytes_total'))} / "
                f"(1 - {rate(aggregator('sluice_observed_lost_seconds_total'))})", "with a schedule {{instance}}")]),
        lines("Time", "percentunit", "Busy: responses were on their way. Lost: a schedule would have saved this part of it.",
              [(rate(aggregator("sluice_observed_busy_seconds_total")), "busy {{instance}}"),
               (rate(aggregator("sluice_observed_lost_seconds_total")), "lost {{instance}}")]),
        lines("Responses", "percentunit",
              "Held: more bytes were on their way than the buffer takes. Lost: they then waited for a TCP timeout.",
              [(f"{rate(aggregator('sluice_observed_held_responses_total'))} / {responses}", "held {{instance}}"),
               (f"{rate(aggregator('sluice_observed_lost_responses_total'))} / {responses}", "lost {{instance}}")]),
        lines("TCP timeouts, and those that a schedule prevents", "ops", "The rest has other causes, such as a bad cable.",
              [(rate(aggregator("sluice_timeouts_total", kind="tcp_rto")), "timeouts {{instance}}"),
               (rate(aggregator("sluice_observed_lost_responses_total")), "prevented {{instance}}")]),
        lines("Bytes above the buffer", "Bps", "Of requests that left while the buffer was full.",
              [(rate(aggregator("sluice_observed_held_bytes_total")), "above {{instance}}")]),
        lines("Policy", "short", "1: the policy in force. A reload of the config may change it.",
              [(aggregator("sluice_schedule_policy") + " > 0", "{{policy}} {{instance}}")]),
    ]  # fmt: skip


def _classes():
    received = rate(aggregator("sluice_class_received_bytes_total"))
    return [
        row("Classes of traffic"),
        lines("Bytes by class", "Bps", "Bytes that arrived over the link, headers included. Absent without classes.",
              [(received, "{{class}} {{instance}}")], stacked=True),
        lines("Shares by class", "percentunit",
              "Share of each class in the bytes that arrived. While calls of several classes wait, the shares follow the weights.",
              [(f"{received} / ignoring (class) group_left () sum without (class) ({received})", "{{class}} {{instance}}")]),
        lines("Calls that wait, by class", "short", "A class without waiting calls needs no larger share.",
              [(aggregator("sluice_class_queued_calls"), "{{class}} {{instance}}")]),
    ]  # fmt: skip


def _latency():
    return [
        row("Latency"),
        lines("Block time", "s", "From submission to end: what a caller sees.", quantiles("sluice_block_seconds"), width=12),
        lines("SRU transfer time", "s", "From the grant, or the request, to the end. 0.2 s and more is a TCP timeout.",
              quantiles("sluice_call_transfer_seconds"), width=12),
        heatmap("Block time, distribution", "A second band 0.2 s or more above the first: TCP retransmission timeouts.",
                buckets("sluice_block_seconds")),
        heatmap("SRU transfer time, distribution", "A band from 0.2 to 0.25 s up: TCP retransmission timeouts.",
                buckets("sluice_call_transfer_seconds")),
        lines("Coverage of blocks", "percentunit",
              "Mean share of a block's bytes that arrived; below 1 where gaps are allowed.",
              [(mean("sluice_block_coverage_ratio"), "mean {{instance}}")], width=12),
        lines("Retries and hedges", "ops",
              "Retries above a percent of the requests have a reason worth finding. Many hedges lost: hedge_after is too "
              "short; many refused: many workers are slow.",
              [(rate(aggregator("sluice_call_retries_total")), "retries {{instance}}"),
               (rate(aggregator("sluice_hedges_total")), "{{outcome}} hedges {{instance}}")], width=12),
    ]  # fmt: skip


def _losses():
    return [
        row("Timeouts and losses, as the aggregator sees them"),
        lines("Timeouts by kind", "ops",
              "rpc_deadline: workers that do not answer. queue_deadline: more load than the link carries. stall: a granted "
              "answer stopped. tcp_rto: the sender's kernel waited 200 ms or more.",
              [(rate(aggregator("sluice_timeouts_total")), "{{kind}} {{instance}}")]),
        lines("Inferred losses per 10,000 SRUs", "short",
              "By evidence. Silence is what is left when a whole window is lost; packets out of order are losses that TCP "
              "repairs by itself.",
              [(aggregator("instance_evidence:sluice_inferred_losses_per_10k_srus:ratio_rate5m"),
                "{{evidence}} {{instance}}")]),
        lines("Packets out of order", "pps", "On the link's connections: what follows a packet that was lost.",
              [(rate(aggregator("sluice_link_out_of_order_packets_total")), "packets {{instance}}")]),
        lines("Round trip of the link's connections", "s",
              "The smallest of all, and the mean of the smoothed. The difference is the queue in the port: at most buffer "
              "over capacity.",
              [(aggregator("sluice_link_rtt_seconds"), "{{stat}} {{instance}}"),
               (aggregator("sluice_link_measured_rtt_seconds"), "measured {{instance}}"),
               (aggregator("sluice_link_profile_rtt_seconds"), "profile {{instance}}")]),
        lines("What workers reported of this aggregator's connections", "ops",
              "Retransmitted packets and retransmission timeouts, from workers of Sluice. Compare with what was inferred.",
              [(rate(aggregator("sluice_worker_reported_tcp_total")), "{{event}} {{instance}}")]),
        lines("TCP connections to workers", "short", "One or two a worker. Growth without new workers is a leak.",
              [(aggregator("sluice_link_connections"), "connections {{instance}}")]),
    ]  # fmt: skip


def _sharing():
    by_application = "{{application}} {{instance}}"
    return [
        row("Links that several processes share"),
        lines("Shares by application", "Bps", "What came over the link, headers included. By weight while all are busy.",
              [(rate(sharing("sluice_sharing_received_bytes_total")), by_application)], stacked=True),
        lines("Leases by application", "bytes",
              "What each may have in flight. Who is idle keeps his lease until somebody wants it.",
              [(sharing("sluice_sharing_lease_bytes"), by_application),
               (sharing("sluice_sharing_budget_bytes"), "budget {{instance}}")]),
        lines("In flight by application", "bytes", "Far below the lease while there is demand: its workers are slow.",
              [(sharing("sluice_sharing_in_flight_bytes"), by_application),
               (sharing("sluice_sharing_draining_bytes"), "processes that are gone {{instance}}")]),
        lines("Demand by application", "bytes", "What all calls that have not ended cost. 0: idle.",
              [(sharing("sluice_sharing_demand_bytes"), by_application)]),
        lines("Shares by class of traffic", "Bps", "Of the processes that name their classes. By weight while all are busy.",
              [(rate(sharing("sluice_sharing_class_received_bytes_total")), "{{class}} {{instance}}")], stacked=True),
        lines("Demand by class of traffic", "bytes", "What the calls of a class that have not ended cost. 0: nobody uses it.",
              [(sharing("sluice_sharing_class_demand_bytes"), "{{class}} {{instance}}")]),
        lines("Processes, and those without a lease", "short",
              "Who shares the link; and aggregators that should and have no lease, so that they go by their safe share.",
              [(sharing("sluice_sharing_processes"), by_application),
               (f"count by (instance) ({aggregator('sluice_budget_leased')} == 0)", "without {{instance}}")]),
        lines("Leases that changed or expired, and refusals", "ops",
              "Expired: the process was not heard of for a lease time. Refused: a uid that may not join, or another version.",
              [(rate(sharing("sluice_sharing_lease_changes_total")), "changed " + by_application),
               (rate(sharing("sluice_sharing_expirations_total")), "expired " + by_application),
               (rate(sharing("sluice_sharing_refusals_total")), "refused {{reason}} {{instance}}")]),
    ]  # fmt: skip


def _mid_level():
    return [
        row("Mid-level aggregators"),
        lines("Blocks that the level above wanted a part of", "ops",
              "A block is read once and wanted many times. Many misses: the cache is too small for what is read at a time.",
              [(rate(aggregator("sluice_mid_level_cache_lookups_total")), "{{outcome}} {{instance}}")], stacked=True),
        lines("Blocks that were read ahead", "ops", "Wasted: they left the cache before anybody wanted them.",
              [(rate(aggregator("sluice_mid_level_read_ahead_blocks_total")), "{{outcome}} {{instance}}")]),
        lines("Blocks in the cache", "bytes", "Those on their way included; at most mid_level.cache.",
              [(aggregator("sluice_mid_level_cache_bytes"), "cache {{instance}}")]),
    ]  # fmt: skip


def _targets():
    return [
        row("Workers, as aggregators and proxies see them"),
        lines("Workers in the list, and workers with a connection", "short",
              "Files without a replica cannot be read while a worker has no connection.",
              [(aggregator("sluice_workers_wanted"), "wanted {{instance}}"),
               (aggregator("sluice_workers_connected"), "connected {{instance}}")]),
        lines("Workers at fault, by fault", "short", "Many workers at once have one cause: a rack, the network or this host.",
              [(aggregator("sluice_faulty_workers"), "{{fault}} {{instance}}")], stacked=True),
        lines("Workers at fault, by name", "short", "1: the worker has this fault. At most twenty workers for each instance.",
              [(aggregator("sluice_worker_fault"), "{{worker}} {{fault}} {{instance}}")]),
        lines("Ejections of workers", "ops",
              "An ejected worker gets no call that another worker can answer. probe: it failed again when it was tried.",
              [(rate(aggregator("sluice_ejections_total")), "{{reason}} {{instance}}")], stacked=True, width=6),
        lines("Calls that the queue refused", "reqps",
              "full: more load than the link carries. worker: one worker hangs or is slow. timeout: longer than queue_timeout.",
              [(rate(aggregator("sluice_queue_refusals_total")), "{{reason}} {{instance}}")], stacked=True, width=6),
        lines("Time until a lost worker is connected again", "s", "Much longer than a restart: names are looked up too late.",
              quantiles("sluice_worker_reconnect_seconds"), width=6),
        lines("Failed look-ups of workers", "ops", "The known workers stay. For long: new workers are not found.",
              [(rate(aggregator("sluice_worker_lookup_failures_total")), "failed {{instance}}")], width=6),
    ]  # fmt: skip


def _proxy():
    by_code = f"sum by (instance, code) ({rate(aggregator('sluice_proxy_calls_total'))})"
    return [
        row("Proxies: calls"),
        lines("Calls through proxies, by status", "reqps",
              "PERMISSION_DENIED: a worker that no pattern allows. UNAVAILABLE: workers that are away. RESOURCE_EXHAUSTED: the "
              "queue is full, or a client does not read.",
              [(by_code, "{{code}} {{instance}}")], stacked=True),
        lines("Time of calls through proxies, p99", "s",
              "From the first header to the end, of calls that had a worker; the ten slowest methods. Streams that stay open "
              "are in it with all their time.",
              [(highest(quantile(0.99, "sluice_proxy_call_seconds")), "{{method}} {{instance}}")]),
        lines("Bytes that proxies hold", "bytes",
              "Responses that clients have not read yet, and requests that workers have not. Near limits.held slow clients "
              "receive nothing more, and calls that upload to slow workers end.",
              [(aggregator("sluice_proxy_held_bytes"), "responses {{instance}}"),
               (aggregator("sluice_proxy_held_request_bytes"), "requests {{instance}}")]),
        row("Proxies: clients"),
        lines("Clients and calls of proxies", "short",
              "Open connections, and calls that have not ended. At limits.connections those end that are idle, for further "
              "ones; at limits.calls further ones are refused.",
              [(aggregator("sluice_proxy_connections"), "connections {{instance}}"),
               (aggregator("sluice_proxy_calls"), "calls {{instance}}")]),
        lines("New connections of proxies, by what they are", "ops",
              "scheduled_tunnel: other bytes to a worker, such as TLS. worker_tunnel: the same without a schedule. "
              "other_tunnel: passed on to other hosts. refused: not allowed, or too many. handshake_failed: without the right "
              "certificate. unreachable: CONNECT to a target that cannot be looked up or reached.",
              [(rate(aggregator("sluice_proxy_connections_total")), "{{kind}} {{instance}}")], stacked=True),
        lines("What proxies ended, per minute", "short",
              "stuck: calls and tunnels with an end that reads nothing. idle: connections that made room for new ones, so "
              "limits.connections is low, or a client opens connections and does not use them.",
              [(f"60 * {rate(aggregator('sluice_proxy_stuck_calls_total'))}", "stuck {{instance}}"),
               (f"60 * {rate(aggregator('sluice_proxy_idle_ends_total'))}", "idle {{instance}}")]),
        lines("Use of shares by groups of clients, ten highest", "percentunit",
              "What a group uses of its share of each limit. Above 100 %, the group gives way once the limit is reached.",
              [(highest(f"{aggregator('sluice_proxy_group_used')} / {aggregator('sluice_proxy_group_share')}"),
                "{{group}} {{limit}} {{instance}}")]),
        lines("Refusals by groups of clients", "ops",
              "cap: of the entry in clients. share: the limit is reached. gave_way: ended for another group.",
              [(rate(aggregator("sluice_proxy_group_refusals_total")), "{{group}} {{limit}} {{reason}} {{instance}}")], stacked=True),
        lines("Lines of access logs that were lost", "ops", "Its disk, or the reader of its pipe, is too slow.",
              [(rate(aggregator("sluice_proxy_access_log_lost_total")), "lost {{instance}}")]),
    ]  # fmt: skip


def _tunnels():
    turns = f"sum without (end) ({rate(aggregator('sluice_tunnel_turns_total'))})"
    return [
        row("Tunnels"),
        lines("Open tunnels of proxies", "short",
              "scheduled: to workers, in turns of the schedule. worker: to workers, without a schedule. other: to other hosts.",
              [(aggregator("sluice_proxy_tunnels"), "{{to}} {{instance}}")], stacked=True),
        lines("Bytes through tunnels of proxies", "Bps",
              "Bytes that came from the far ends. The share of worker and other follows no schedule.",
              [(rate(aggregator("sluice_proxy_tunnel_received_bytes_total")), "{{to}} {{instance}}")], stacked=True),
        lines("Scheduled tunnels, by phase", "short",
              "waiting: for a turn; many of them and few in a turn: the port is busy. held: the client does not read.",
              [(f"sum by (instance, phase) ({aggregator('sluice_tunnels')})", "{{phase}} {{instance}}")], stacked=True),
        lines("Bytes through scheduled tunnels", "Bps", "By the pattern of workers that permits the target.",
              [(rate(aggregator("sluice_tunnel_received_bytes_total")), "{{workers}} {{instance}}")], stacked=True, width=6),
        lines("Windows of scheduled tunnels", "bytes", "Of the tunnels that have a turn. The rest of the budget belongs to calls.",
              [(aggregator("sluice_tunnel_window_bytes"), "{{workers}} {{instance}}"),
               (aggregator("sluice_budget_bytes"), "budget {{instance}}")], width=6),
        lines("Turns of tunnels, by their end", "ops",
              "silence: the response has ended. part: the tunnel asked again. unanswered: no response in the turn. client: "
              "the client does not read.",
              [(f"sum by (instance, end) ({rate(aggregator('sluice_tunnel_turns_total'))})", "{{end}} {{instance}}")],
              stacked=True, width=6),
        lines("Surprises per turn", "percentunit",
              "Windows that came when no turn had room for them. Above a tenth, the proxy does not recognise the ends of "
              "responses.",
              [(f"{rate(aggregator('sluice_tunnel_surprises_total'))} / {turns}", "{{workers}} {{instance}}")], width=6),
    ]  # fmt: skip


def _workers():
    window = "sluice_worker_tcp_congestion_window_packets"
    namespace = "Of the workers' network namespaces; workers that share one count it once each. "
    return [
        row("Workers: TCP"),
        lines("Retransmission timeouts, all workers", "ops", "What Sluice is there to prevent.",
              [("job:sluice_worker_tcp_rtos:rate5m", "rto {{job}}")]),
        lines("Retransmission timeouts, ten highest", "ops",
              "One worker that stands out has a path or a card of its own to blame.",
              [(highest(worker("instance:sluice_worker_tcp_rtos:rate5m")), "{{instance}}")]),
        lines("Retransmitted packets, ten highest", "pps", "Without timeouts they cost little; they come first.",
              [(highest(rate(worker("sluice_worker_tcp_retransmitted_packets_total"))), "{{instance}}")]),
        lines("Losses by feedback", "ops",
              namespace + "none: full windows, which cost a timeout. some: the receiver told of it. probe: repaired by a "
              "tail-loss probe.",
              [(f"sum by (feedback) ({rate(worker('sluice_worker_tcp_losses_total'))})", "{{feedback}}")]),
        lines("Repairs", "ops",
              namespace + "Tail-loss probes are extra packets in the buffer. Lost retransmissions: it is full all the time. "
              "Spurious timeouts: nothing was lost, the acknowledgement was late.",
              [(f"sum({rate(worker('sluice_worker_tcp_loss_probes_total'))})", "probe for tail loss"),
               (f"sum({rate(worker('sluice_worker_tcp_lost_retransmits_total'))})", "lost retransmissions"),
               (f"sum({rate(worker('sluice_worker_tcp_spurious_rtos_total'))})", "spurious timeouts")]),
        lines("Round trip", "s", "Of the workers' connections: the smallest, and the highest ten of the smoothed.",
              [(f"min({worker('sluice_worker_tcp_rtt_seconds', stat='min')} > 0)", "min"),
               (highest(worker("sluice_worker_tcp_rtt_seconds", stat="smoothed")), "{{instance}}")]),
        lines("Congestion window", "short",
              "In packets, over all workers. Small ones with losses: TCP has taken over from the schedule.",
              [(f"min({worker(window, stat='min')})", "min"),
               (f"avg({worker(window, stat='mean')})", "mean"),
               (f"max({worker(window, stat='max')})", "max")]),
        lines("TCP connections, ten highest", "short",
              "Of a worker: one or two for each aggregator, times the ports that it listens on.",
              [(highest(worker("sluice_worker_tcp_connections")), "{{instance}}")]),
        lines("Timeouts per SRU, ten highest", "percentunit", "From 1 % on, p99 of every block waits for this worker.",
              [(highest(worker("instance:sluice_worker_tcp_rtos_per_sru:ratio_rate5m")), "{{instance}}")]),
        row("Workers: service"),
        lines("SRUs answered, by outcome", "reqps",
              "not_found: striped for other workers. out_of_range: a stripe is truncated. error: see the worker's log.",
              [(f"sum by (outcome) ({rate(worker('sluice_worker_sru_requests_total'))})", "{{outcome}}")],
              stacked=True, width=6),
        lines("Manifests answered, by outcome", "reqps", "One for each read of a file.",
              [(f"sum by (outcome) ({rate(worker('sluice_worker_manifest_requests_total'))})", "{{outcome}}")],
              stacked=True, width=6),
        lines("Bytes sent, ten highest", "Bps", "Workers of a stripe send about the same.",
              [(highest(worker("instance:sluice_worker_sent_bytes:rate5m")), "{{instance}}")], width=6),
        lines("Time to read from disk, p99, ten highest", "s", "A slow disk shows here and in no metric of the network.",
              [(highest(worker("instance:sluice_worker_read_seconds:p99_rate5m")), "{{instance}}")], width=6),
        lines("Disks that do not respond, ten highest", "short", "Data folders without a read for 5 s. The log names them.",
              [(highest(worker("sluice_worker_silent_disks")), "{{instance}}")], width=12),
        lines("Calls that no rule of access allows", "ops", "The log names the client, the method and the field.",
              [(f"sum by (service) ({rate(worker('sluice_access_refusals_total'))})", "{{service}}")],
              stacked=True, width=12),
    ]  # fmt: skip


def _processes():
    return [
        row("Processes"),
        lines("Processors in use", "short", "Near the number of cores, the processor is the bottleneck and not the link.",
              [(highest(rate(process("process_cpu_seconds_total"))), "{{job}} {{instance}}")], width=6),
        lines("Resident memory", "bytes", "Flat while large files are read.",
              [(highest(process("process_resident_memory_bytes")), "{{job}} {{instance}}")], width=6),
        lines("Open file descriptors", "short", "About one a worker on an aggregator; growth is a leak.",
              [(highest(process("process_open_fds")), "{{job}} {{instance}}")], width=6),
        lines("Time since start", "s", "The youngest ten. Back to 0 is a restart.",
              [(f"bottomk(10, time() - {process('process_start_time_seconds')})", "{{job}} {{instance}}")], width=6),
        lines("Processes by version", "short", "More than one version: a rollout is under way, or has stopped.",
              [(f"count by (job, version) ({process('sluice_build_info')})", "{{job}} {{version}}")], width=6),
        lines("Breached invariants, per hour", "short", "Above 0: a defect of Sluice. The log names the condition.",
              [(f"3600 * {rate(process('sluice_invariant_breaches_total'))}", "{{job}} {{instance}}"),
               (f"3600 * {rate(sharing('sluice_invariant_breaches_total'))}", "link {{instance}}")], width=6),
        lines("Changes of the config, per hour", "short", "invalid, refused: a change is not in force. The log has the reason.",
              [(f"3600 * {rate(aggregator('sluice_config_reloads_total'))}", "{{outcome}} {{instance}}")], width=6),
        lines("Time since the config was read", "s", "The age of the config in force.",
              [(f"time() - {aggregator('sluice_config_last_reload_success_timestamp_seconds')}", "age {{instance}}")], width=6),
        lines("Different configs in force", "short", "Instances of a job with the same config count once. 1: all agree.",
              [(f'count by (job) (count_values by (job) ("hash", {aggregator("sluice_config_hash")}))', "{{job}}")], width=6),
    ]  # fmt: skip


def _instances(name, label, metric):
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "definition": f"label_values({metric}, instance)",
        "query": {"query": f"label_values({metric}, instance)", "refId": name},
        "refresh": 2,  # on a change of the time range
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def dashboard():
    panels = [*_overview(), *_goodput(), *_budget(), *_queue(), *_observed(), *_classes(), *_latency(), *_losses(),
              *_targets()]
    panels += [*_sharing(), *_mid_level(), *_proxy(), *_tunnels(), *_workers(), *_processes()]
    source = {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus"}
    alerts = {
        "name": "Alerts",
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertname=~"Sluice.*", alertstate="firing"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{instance}}",
    }
    return {
        "uid": "sluice",
        "title": "Sluice",
        "description": "One bottleneck link for each aggregator, and the workers behind it.",
        "tags": ["sluice"],
        "schemaVersion": 37,
        "editable": True,
        "graphTooltip": 1,  # one cross-hair for all panels
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": [alerts]},
        "templating": {
            "list": [
                source,
                _instances("instance", "Aggregator", "sluice_budget_bytes"),
                _instances("worker", "Worker", "sluice_worker_sent_bytes_total"),
                _instances("link", "Shared link", "sluice_sharing_budget_bytes"),
            ]
        },
        "panels": placed(panels),
    }


def text(made):
    """One line per panel: a change of a panel is one line of a diff, and the file is half as large as an indented one."""
    *fields, (_, panels) = made.items()
    lines = [f"{json.dumps(key)}: {json.dumps(value)}," for key, value in fields]
    return "\n".join(["{", *lines, '"panels": [', ",\n".join(map(json.dumps, panels)), "]", "}"])


if __name__ == "__main__":
    print(text(dashboard()))

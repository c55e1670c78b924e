// incast_sim: one point of the simulation on ns-3. Prints a line with the names of the columns, and a line of CSV.
#include <algorithm>
#include <iostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "lib/cli/program.h"
#include "lib/cli/units.h"
#include "research/ns3/incast.h"
#include "tools/percentile.h"

namespace sluice::testing {
namespace {

struct Flags {
  std::string policy = "grants";
  std::string rate = "1gbit";
  std::string access_rate;
  std::string rtt = "100us";
  std::string buffer = "32kb";
  std::string told_buffer;
  std::string budget;
  std::string ecn_threshold;
  std::string rto_min = "200ms";
  std::string delayed_ack = "40ms";
  std::string receive_buffer = "6mb";
  std::string sizes = "fixed:32kb";
  std::string think = "0";
  std::string jitter = "0s";
  std::string timer_granularity;
  std::string timer_jitter = "200us";
  std::string timers_late = "0s";
  std::string thread_turn = "0s";
  std::string thread_read = "0s";
  std::string thread_write = "0s";
  std::string longest = "100s";
  std::string longest_run = "1h";
  std::string neighbour_pause = "0s";
  bool deciles = false;
  std::string victim_size;
  std::string victim_pause = "1ms";
  IncastOptions options;
};

void AddNetworkFlags(CLI::App& app, Flags& flags) {
  Network::Options& network = flags.options.network;
  auto* group = app.add_option_group("Network");
  group->add_option("--rate", flags.rate, "Capacity of the bottleneck link, for example 10gbit");
  group->add_option("--access_rate", flags.access_rate, "That of the workers' links; default: the same");
  group->add_option("--rtt", flags.rtt, "Round trip of the empty network");
  group->add_option("--buffer", flags.buffer, "Of each port of a switch: bytes, or packets as in 100p");
  group->add_option("--shared_alpha", network.shared_alpha,
                    "Above 0: the ports of a switch share the buffer, and one may hold so many times what is free");
  group->add_option("--buffer_taken", flags.options.buffer_taken_share,
                    "Share of the buffer that is not there, which the schedule does not know");
  group->add_option("--ecn_threshold", flags.ecn_threshold, "Mark packets that find more than so many bytes queued");
  group->add_option("--fat_tree", network.fat_tree_arity, "Arity of a fat tree; 0: a star");
  auto* tcp = app.add_option_group("TCP of all hosts");
  tcp->add_option("--tcp", network.tcp.variant, "NewReno, LinuxReno, Cubic, Bbr, Dctcp or Vegas, of ns-3");
  tcp->add_option("--rto_min", flags.rto_min, "Least retransmission timeout");
  tcp->add_option("--rto_random", network.tcp.rto_random_share,
                  "Each timeout is longer by a random share of up to this");
  tcp->add_option("--delayed_ack", flags.delayed_ack, "Time after which an ACK is sent in any case");
  tcp->add_option("--acked_segments", network.tcp.acked_segments, "Segments for one ACK; 1: no delayed ACKs");
  tcp->add_option("--initial_window", network.tcp.initial_window_segments, "Initial congestion window, in segments");
  tcp->add_option("--duplicate_acks", network.tcp.duplicate_acks, "That begin a fast retransmit");
  tcp->add_option("--limited_transmit", network.tcp.limited_transmit, "RFC 3042");
  tcp->add_option("--sack", network.tcp.sack, "Selective ACKs");
  tcp->add_option("--timestamps", network.tcp.timestamps, "Timestamps (RFC 7323)");
  tcp->add_option("--mtu", network.tcp.mtu_bytes, "Largest IP packet");
  tcp->add_option("--receive_buffer", flags.receive_buffer, "Of each connection");
}

void AddFlags(CLI::App& app, Flags& flags) {
  AddNetworkFlags(app, flags);
  IncastOptions& options = flags.options;
  auto* schedule = app.add_option_group("Schedule");
  schedule->add_option("--policy", flags.policy, "unscheduled, batches, rolling or grants");
  schedule->add_flag("--tunnels", options.tunnels,
                     "Byte tunnels instead of calls, as LinkStream has; they take turns with rolling and grants");
  schedule->add_option("--static_cap", options.static_cap,
                       "With unscheduled: calls in flight at most, of all fan-outs; 0: no cap");
  schedule->add_option("--shortest_first", options.shortest_first, "Serve the shortest fan-out first; 0: the oldest");
  schedule->add_option("--paced", options.paced,
                       "Grant more than the budget at nearly the rate of the link, if the path holds more");
  schedule->add_option("--told_buffer", flags.told_buffer,
                       "Buffer that the schedule is configured with; default: --buffer");
  schedule->add_option("--budget", flags.budget, "Bytes in flight, always; default: the buffer, and less after losses");
  schedule->add_option("--announced", options.announced_share,
                       "What the schedule is told of an answer's size, in parts of the truth; 0: nothing");
  schedule->add_option("--timer_granularity", flags.timer_granularity,
                       "Timers of the link's thread fire at multiples of this time, which the schedule knows; default: "
                       "at any time");
  schedule->add_option("--timer_jitter", flags.timer_jitter, "Lateness of timers that the schedule allows for");
  schedule->add_option("--timers_late", flags.timers_late, "Timers of the link's thread are late by at most so much");
  schedule->add_option("--thread_turn", flags.thread_turn, "Processor time of each turn of the link's thread");
  schedule->add_option("--thread_read", flags.thread_read, "Its time for each read of a connection");
  schedule->add_option("--thread_write", flags.thread_write, "Its time for each write");
  auto* service = app.add_option_group("Service");
  service->add_option("--workers", options.workers, "N; every fan-out asks all of them");
  service->add_option("--asked", options.asked, "Workers that a fan-out asks, drawn at random; 0: all");
  service->add_option("--aggregators", options.aggregators,
                      "Each has its own link, port and load; they share the workers");
  service->add_flag("--peers", options.peers, "Worker i runs on the host of aggregator i, which asks only the others");
  service->add_option("--hosts", options.hosts, "Hosts that the workers share; 0: one each");
  service->add_option(
      "--sizes", flags.sizes,
      "Of an answer: fixed:32kb, uniform:1kb-9kb, log:2kb-1mb, exp:10kb, web-search, cache-follower, homa-w3, "
      "homa-w4");
  service->add_option("--think", flags.think,
                      "Of a worker: 0, fixed:10ms, uniform:0ms-2ms, exp:2ms, tail:2ms,0.05,200ms");
  service->add_option("--jitter", flags.jitter, "Each write of a worker is late by at most so much");
  auto* load = app.add_option_group("Load");
  load->add_option("--load", options.load,
                   "Open loop: Poisson arrivals that offer so much of the link; 0: closed loop");
  load->add_option("--burst", options.burst, "Open loop: fan-outs that arrive together");
  load->add_option("--concurrency", options.concurrency, "Closed loop: fan-outs under way, of each aggregator");
  load->add_option("--neighbour_pause", flags.neighbour_pause,
                   "Closed loop: mean pause of the other aggregators between two fan-outs");
  load->add_option("--warm_up", options.warm_up, "Fan-outs of the first aggregator that do not count")
      ->check(CLI::PositiveNumber);
  load->add_option("--fan_outs", options.fan_outs, "Fan-outs that count");
  load->add_option("--victim_size", flags.victim_size, "Of a message of somebody else's, through the same port");
  load->add_option("--victim_pause", flags.victim_pause, "Mean pause between two of these");
  load->add_flag(
      "--deciles", flags.deciles,
      "Report the slowdown, by deciles of the size of fan-outs: the time as a multiple of that of one response "
      "of this size in the idle network");
  load->add_option("--seed", options.seed, "All that is random follows from it");
  load->add_option("--longest", flags.longest, "Simulated time after which the run is cut off");
  load->add_option("--longest_run", flags.longest_run, "Processor time after which it is");
}

absl::Status ParseNanoseconds(const char* field, const std::string& text, std::chrono::nanoseconds& value) {
  absl::Duration duration = absl::FromChrono(value);
  const absl::Status status = ParseField(field, text, ParseDuration, duration);
  value = absl::ToChronoNanoseconds(duration);
  return status;
}

absl::Status Configure(Flags& flags) {
  IncastOptions& options = flags.options;
  Network::Options& network = options.network;
  absl::Status status = ParseField("policy", flags.policy, ParseSchedulePolicy, options.policy);
  status.Update(ParseField("rate", flags.rate, ParseBitRate, network.bits_per_second));
  status.Update(ParseField("access_rate", flags.access_rate, ParseBitRate, network.access_bits_per_second));
  status.Update(ParseField("rtt", flags.rtt, ParseDuration, network.rtt));
  BufferSize buffer;
  status.Update(ParseField("buffer", flags.buffer, ParseBufferSize, buffer));
  network.buffer_bytes = buffer.bytes;
  network.buffer_packets = buffer.packets;
  status.Update(ParseField("ecn_threshold", flags.ecn_threshold, ParseByteSize, network.mark_above_bytes));
  network.tcp.ecn = network.mark_above_bytes > 0;
  status.Update(ParseField("rto_min", flags.rto_min, ParseDuration, network.tcp.rto_min));
  status.Update(ParseField("delayed_ack", flags.delayed_ack, ParseDuration, network.tcp.delayed_ack));
  int64_t receive_buffer = 0;
  status.Update(ParseField("receive_buffer", flags.receive_buffer, ParseByteSize, receive_buffer));
  network.tcp.receive_buffer_bytes = static_cast<uint32_t>(receive_buffer);
  status.Update(ParseField("told_buffer", flags.told_buffer, ParseByteSize, options.told_buffer_bytes));
  status.Update(ParseField("budget", flags.budget, ParseByteSize, options.budget_bytes));
  status.Update(ParseField("sizes", flags.sizes, Distribution::ParseSizes, options.sizes));
  status.Update(ParseField("think", flags.think, Distribution::ParseTimes, options.think));
  status.Update(ParseNanoseconds("jitter", flags.jitter, options.jitter));
  if (!flags.timer_granularity.empty()) {
    status.Update(ParseNanoseconds("timer_granularity", flags.timer_granularity, options.link_thread.timer_step));
  }
  status.Update(ParseField("timer_jitter", flags.timer_jitter, ParseDuration, options.timer_jitter));
  status.Update(ParseNanoseconds("timers_late", flags.timers_late, options.link_thread.timers_late));
  status.Update(ParseNanoseconds("thread_turn", flags.thread_turn, options.link_thread.turn));
  status.Update(ParseNanoseconds("thread_read", flags.thread_read, options.link_thread.read));
  status.Update(ParseNanoseconds("thread_write", flags.thread_write, options.link_thread.write));
  status.Update(ParseField("longest", flags.longest, ParseDuration, options.longest));
  status.Update(ParseField("longest_run", flags.longest_run, ParseDuration, options.longest_run));
  status.Update(ParseNanoseconds("neighbour_pause", flags.neighbour_pause, options.neighbour_pause));
  if (!flags.victim_size.empty()) {
    options.victim.emplace();
    status.Update(ParseField("victim_size", flags.victim_size, ParseByteSize, options.victim->message_bytes));
    status.Update(ParseNanoseconds("victim_pause", flags.victim_pause, options.victim->mean_pause));
  }
  return status;
}

// Returns the share of payload on an idle link: only full packets.
double PayloadShare(const TcpOptions& tcp) {
  return static_cast<double>(tcp.SegmentBytes()) / static_cast<double>(tcp.mtu_bytes + 2);
}

using Columns = std::vector<std::pair<std::string, double>>;

// Returns the largest size and the slowdown of each tenth of the fan-outs, by size. Fan-outs of equal size are
// shuffled: in the order of their arrival, a tenth would be an interval of time.
Columns DecilesOf(const IncastOptions& options, const IncastResult& result) {
  constexpr size_t kDeciles = 10;
  std::vector<FanOutTime> times = result.times;
  std::shuffle(times.begin(), times.end(), std::mt19937_64(options.seed));
  std::stable_sort(times.begin(), times.end(),
                   [](const FanOutTime& left, const FanOutTime& right) { return left.bytes < right.bytes; });
  Columns columns;
  for (size_t decile = 0; decile < kDeciles; ++decile) {
    const size_t end = (decile + 1) * times.size() / kDeciles;
    std::vector<double> slowdowns;
    for (size_t i = decile * times.size() / kDeciles; i < end; ++i) {
      slowdowns.push_back(times[i].seconds / IdleSeconds(options, times[i].bytes));
    }
    if (slowdowns.empty()) continue;
    columns.emplace_back(absl::StrCat("bytes_d", decile + 1), times[end - 1].bytes);
    columns.emplace_back(absl::StrCat("slowdown_p50_d", decile + 1), Percentile(slowdowns, 0.5));
    columns.emplace_back(absl::StrCat("slowdown_p99_d", decile + 1), Percentile(slowdowns, 0.99));
  }
  return columns;
}

// Returns the goodput and the p99 of the first aggregator, and the means of the others.
Columns NeighboursOf(const IncastOptions& options, const IncastResult& result) {
  std::vector<double> first;
  std::vector<double> others;
  for (const FanOutTime& time : result.times) (time.aggregator == 0 ? first : others).push_back(time.seconds);
  const auto aggregators = static_cast<double>(options.aggregators);
  Columns columns = {
      {"first_mbps", result.first_goodput_bps / 1e6},
      {"others_mbps", (result.goodput_bps * aggregators - result.first_goodput_bps) / (aggregators - 1) / 1e6},
      {"first_p50_ms", 1e3 * Percentile(first, 0.5)},
      {"first_p99_ms", 1e3 * Percentile(first, 0.99)},
      {"others_p99_ms", 1e3 * Percentile(others, 0.99)}};
  if (options.peers) {
    columns.emplace_back("granted_bytes", result.granted_bytes);
    columns.emplace_back("stranded_bytes", result.stranded_bytes);
  }
  return columns;
}

absl::Status RunAndPrint(const Flags& flags) {
  const auto result = RunIncast(flags.options);
  if (!result.ok()) return result.status();
  const Network::Options& network = flags.options.network;
  std::string names;
  std::string values;
  const auto add = [&names, &values](const char* name, const auto& value) {
    absl::StrAppend(&names, names.empty() ? "" : ",", name);
    absl::StrAppend(&values, values.empty() ? "" : ",", value);
  };
  const auto milliseconds = [](const std::vector<double>& seconds, double p) { return 1e3 * Percentile(seconds, p); };
  add("fan_outs", result->fan_outs);
  add("unfinished", result->unfinished);
  add("failed_calls", result->failed_calls);
  add("seconds", result->seconds);
  add("goodput_mbps", result->goodput_bps / 1e6);
  add("goodput_share", result->goodput_bps / (network.bits_per_second * PayloadShare(network.tcp)));
  add("link_busy", result->link_busy_share);
  add("p50_ms", milliseconds(result->fan_out_seconds, 0.5));
  add("p99_ms", milliseconds(result->fan_out_seconds, 0.99));
  add("p999_ms", milliseconds(result->fan_out_seconds, 0.999));
  add("drops", result->bottleneck.dropped_packets);
  add("other_drops", result->other_drops);
  add("rtos", result->retransmission_timeouts);
  add("surprises", result->surprises);
  add("marks", result->bottleneck.marked_packets);
  add("most_queued_bytes", result->bottleneck.most_bytes);
  add("most_queued_packets", result->bottleneck.most_packets);
  add("victims", result->victim_seconds.size());
  add("victim_p50_ms", milliseconds(result->victim_seconds, 0.5));
  add("victim_p99_ms", milliseconds(result->victim_seconds, 0.99));
  add("thread_busy", result->link_thread_busy_share);
  add("turns", result->turns);
  add("budget_bytes", result->budget_bytes);
  add("budget_changes", result->budget_changes);
  if (flags.deciles) {
    for (const auto& [name, value] : DecilesOf(flags.options, *result)) add(name.c_str(), value);
  }
  if (flags.options.aggregators > 1) {
    for (const auto& [name, value] : NeighboursOf(flags.options, *result)) add(name.c_str(), value);
  }
  add("events", result->events);
  add("run_seconds", result->run_seconds);
  std::cout << names << '\n' << values << '\n';
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice::testing

int main(int argc, char** argv) {
  sluice::testing::Flags flags;
  return sluice::RunProgram(
      argc, argv,
      {.name = "incast_sim",
       .description = "Sluice's client over the TCP of ns-3: one service, one network, one line of CSV.",
       .add_flags = [&flags](CLI::App& app) { sluice::testing::AddFlags(app, flags); },
       .configure = [&flags] { return sluice::testing::Configure(flags); },
       .run = [&flags] { return sluice::testing::RunAndPrint(flags); }});
}

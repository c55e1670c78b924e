// Calls the servers of answers.proto in fan-outs, through Sluice or by hand, in a closed or an open loop, and reports
// the time of each fan-out. A part of the test network, not installed.

#include <chrono>
#include <deque>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <unistd.h>

#include "sluice/fan_out.h"
#include "sluice/link.h"
#include "sluice/v1/link_profile.pb.h"

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "lib/cli/link_profile_flags.h"
#include "lib/cli/program.h"
#include "lib/cli/units.h"
#include "lib/link/link_loop.h"
#include "lib/link/worker_list.h"
#include "tests/testbed/answer_workload.h"
#include "tests/testbed/block_callers.h"
#include "tests/testbed/start_file.h"
#include "tools/json_report.h"
#include "tools/percentile.h"

namespace sluice::testbed {
namespace {

using Clock = BlockRecord::Clock;

double Milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Returns this process's memory in RAM.
double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0;
  double resident_pages = 0;
  statm >> pages >> resident_pages;
  return resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

struct ReaderResult {
  std::vector<double> block_ms;  // of complete blocks
  double usual_ms = 0;           // sum over blocks: from the start of a block to its last usual response
  int64_t bytes = 0;
  int64_t usual_bytes = 0;
  size_t retries = 0;
  size_t hedges = 0;
  size_t hedges_won = 0;
  int64_t errors = 0;  // blocks that did not complete
  std::string error_sample;
};

// Decides when the next block starts: as soon as a reader is free, or at random times that do not wait for readers. One
// for each part of a run, shared by its readers. Thread-safe.
class Arrivals {
 public:
  explicit Arrivals(int blocks) : left_(blocks) {}

  // Poisson arrivals, starting with the first call of Next.
  Arrivals(int blocks, double per_second, uint32_t seed) : left_(blocks), random_(seed), gap_s_(per_second) {}

  // Waits for the next arrival. Returns nullopt after the last one.
  std::optional<Clock::time_point> Next() {
    std::optional<Clock::time_point> arrival = Take();
    if (arrival) std::this_thread::sleep_until(*arrival);
    return arrival;
  }

 private:
  std::optional<Clock::time_point> Take() {
    absl::MutexLock lock(&mutex_);
    if (left_ == 0) return std::nullopt;
    --left_;
    if (!gap_s_) return Clock::now();
    if (!last_) last_ = Clock::now();
    *last_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>((*gap_s_)(random_)));
    return last_;
  }

  absl::Mutex mutex_;
  int left_ ABSL_GUARDED_BY(mutex_);
  std::mt19937 random_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::exponential_distribution<double>> gap_s_ ABSL_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> last_ ABSL_GUARDED_BY(mutex_);
};

// Requests one block at a time, and measures the time of each block from its arrival.
class Reader {
 public:
  Reader(std::unique_ptr<BlockCaller> caller, const AnswerShape& shape, size_t workers, absl::Duration timeout,
         uint32_t seed)
      : caller_(std::move(caller)), workload_(shape, seed), workers_(workers), timeout_(timeout) {}

  void Read(Arrivals& arrivals) {
    result_ = {};
    while (const std::optional<Clock::time_point> arrival = arrivals.Next()) {
      const std::vector<v1::AnswerRequest> requests = workload_.NextBlock(workers_);
      BlockRecord record{.started = *arrival};
      const absl::Status status = caller_->Call(requests, timeout_, record);
      if (status.ok()) {
        Count(record);
      } else {
        ++result_.errors;
        result_.error_sample = status.ToString();
      }
    }
  }

  const ReaderResult& result() const { return result_; }

 private:
  void Count(const BlockRecord& record) {
    result_.block_ms.push_back(Milliseconds(Clock::now() - record.started));
    result_.usual_ms += Milliseconds(record.usual_ended - record.started);
    result_.bytes += record.bytes;
    result_.usual_bytes += record.usual_bytes;
    result_.retries += record.retries;
    result_.hedges += record.hedges;
    result_.hedges_won += record.hedges_won;
  }

  const std::unique_ptr<BlockCaller> caller_;
  AnswerWorkload workload_;
  const size_t workers_;
  const absl::Duration timeout_;
  ReaderResult result_;
};

void RunAll(std::deque<Reader>& readers, Arrivals& arrivals) {
  std::vector<std::jthread> threads;
  threads.reserve(readers.size());
  for (Reader& reader : readers) threads.emplace_back([&reader, &arrivals] { reader.Read(arrivals); });
}

class FanOutLoad {
 public:
  void AddFlags(CLI::App& app) {
    AddListFlag(app, "--workers", "host:port of the servers, comma-separated; or a range, as in 127.0.1.{1..250}:7000",
                [this](const std::vector<std::string>& list) { workers_ = list; });
    app.add_option("--mode", mode_, "fan-out: through Sluice; hand-written: gRPC alone. Default fan-out")
        ->check(CLI::IsMember({"fan-out", "hand-written"}));
    app.add_option("--policy", policy_, "Of the link. Default: what the library takes without being told");
    app.add_flag("--inline_callbacks", link_options_.inline_callbacks, "Take answers on the thread of the link");
    app.add_option("--threads", link_options_.threads, "That carry the link. Default 1");
    app.add_option("--response_bytes", response_bytes_,
                   "Of an answer; two as in 200:200000 are a range, from which "
                   "sizes are drawn log-uniformly. Default 10kb");
    app.add_flag("--unknown_sizes", unknown_sizes_, "Do not tell Sluice how large answers will be");
    app.add_option("--messages", shape_.messages, "Of an answer; above 1 it is a stream. Default 1")
        ->check(CLI::Range(1, 1000));
    app.add_option("--think", think_, "Servers answer so much later. Default 0");
    app.add_option("--tail_time", tail_time_, "Instead of --think for a share of the answers");
    app.add_option("--tail_share", shape_.tail_share, "That share. Default 0")->check(CLI::Range(0.0, 1.0));
    app.add_option("--in_flight", in_flight_, "Of hand-written: requests at a time, of all readers. Default: all")
        ->check(CLI::Range(1, 1000000));
    app.add_option("--replicas", fan_out_options_.replicas, "Other servers that may answer for each one. Default 0");
    app.add_option("--hedge_after", hedge_after_, "Ask a replica when there is no answer so long after the request");
    app.add_option("--hedge_ratio", fan_out_options_.call.hedge_ratio, "Hedges, at most, as a share of requests");
    app.add_option("--blocks", blocks_,
                   "Fan-outs for each reader, which share them; with --arrivals, of all together. Default 10")
        ->check(CLI::Range(1, 1000000));
    app.add_option("--readers", readers_, "Readers at the same time. Default 1")->check(CLI::Range(1, 1000));
    app.add_option(
           "--arrivals", arrivals_per_second_,
           "Fan-outs that arrive in a second, at random (Poisson), and are taken by readers that are free; the time of "
           "each counts from its arrival. Default: a reader begins its next when it has its last")
        ->check(CLI::Range(1e-3, 1e6));
    app.add_option("--warmup", warmup_blocks_,
                   "Fan-outs before, not counted, for each reader or of all as above. Default 0")
        ->check(CLI::Range(0, 1000000));
    app.add_option("--seed", seed_, "Of the sizes. Default 1");
    app.add_option("--start_file", start_file_, "After the warm-up say \"warm\" on stderr, and wait for this file");
    app.add_option("--timeout", timeout_, "For each fan-out. Default 600s");
    AddLinkProfileFlags(app, link_);
  }

  absl::Status Configure() {
    absl::StatusOr<std::vector<std::string>> workers = ParseFixedWorkers(workers_);
    if (!workers.ok()) return workers.status();
    workers_ = *std::move(workers);
    absl::StatusOr<AnswerShape> sizes = ParseResponseBytes(response_bytes_);
    if (!sizes.ok()) return sizes.status();
    shape_.min_bytes = sizes->min_bytes;
    shape_.max_bytes = sizes->max_bytes;
    absl::Status status = ParseMicroseconds("think", think_, shape_.think_us);
    status.Update(ParseMicroseconds("tail_time", tail_time_, shape_.tail_think_us));
    status.Update(ParseField("timeout", timeout_, ParseDuration, fan_out_options_.call.timeout));
    if (!hedge_after_.empty()) {
      status.Update(
          ParseField("hedge_after", hedge_after_, ParseDuration, fan_out_options_.call.hedge_after.emplace()));
    }
    fan_out_options_.sizes_known = !unknown_sizes_;
    if (mode_ == "hand-written" && (shape_.messages > 1 || !hedge_after_.empty() || !policy_.empty())) {
      status.Update(absl::InvalidArgumentError("mode hand-written knows no policy, messages and hedge_after"));
    }
    if (mode_ != "hand-written" && in_flight_ > 0) {
      status.Update(absl::InvalidArgumentError("in_flight is for mode hand-written"));
    }
    status.Update(ConfigureLink());
    return status;
  }

  absl::Status Run() {
    std::deque<Reader> readers;
    absl::Status made = MakeReaders(readers);
    if (!made.ok()) return made;
    const bool open_loop = arrivals_per_second_ > 0;
    const int sharers = open_loop ? 1 : readers_;
    Arrivals warm_up(warmup_blocks_ * sharers);
    RunAll(readers, warm_up);
    if (absl::Status start = AwaitStartFile(start_file_); !start.ok()) return start;
    const double cpu_before = CpuSeconds();
    observed_before_ = Observed();
    const auto started = Clock::now();
    Arrivals arrivals = open_loop ? Arrivals(blocks_, arrivals_per_second_, seed_) : Arrivals(blocks_ * sharers);
    RunAll(readers, arrivals);
    const double seconds = Milliseconds(Clock::now() - started) / 1e3;
    return Report(readers, seconds, CpuSeconds() - cpu_before);
  }

 private:
  static absl::Status ParseMicroseconds(const char* field, const std::string& text, uint32_t& microseconds) {
    absl::Duration time;
    absl::Status status = ParseField(field, text, ParseDuration, time);
    if (time > absl::Hours(1)) status.Update(absl::InvalidArgumentError(absl::StrCat(field, " is above 1h")));
    microseconds = static_cast<uint32_t>(absl::ToInt64Microseconds(time));
    return status;
  }

  absl::Status ConfigureLink() {
    absl::StatusOr<LinkProfile> profile = ParseLinkProfile(link_);
    if (!profile.ok()) return profile.status();
    link_options_.schedule.profile = *profile;
    if (policy_.empty()) return absl::OkStatus();
    absl::StatusOr<SchedulePolicy> policy = ParseSchedulePolicy(policy_);
    if (!policy.ok()) return policy.status();
    link_options_.schedule.policy = *policy;
    return absl::OkStatus();
  }

  absl::Status MakeReaders(std::deque<Reader>& readers) {
    if (mode_ == "hand-written") {
      stubs_ = ConnectByHand(workers_);
      cap_.emplace(in_flight_ > 0 ? in_flight_ : std::numeric_limits<size_t>::max());
    } else {
      absl::Status connected = MakeFanOut();
      if (!connected.ok()) return connected;
    }
    for (int i = 0; i < readers_; ++i) {
      readers.emplace_back(
          fan_out_ ? MakeFanOutCaller(*fan_out_, fan_out_options_) : MakeHandWrittenCaller(stubs_, *cap_), shape_,
          workers_.size(), fan_out_options_.call.timeout, seed_ + i);
    }
    return absl::OkStatus();
  }

  absl::Status MakeFanOut() {
    absl::StatusOr<std::shared_ptr<Link>> link = Link::Create(link_options_);
    if (!link.ok()) return link.status();
    link_in_use_ = *std::move(link);
    absl::StatusOr<std::unique_ptr<FanOut>> fan_out =
        FanOut::Create(link_in_use_, {.workers = workers_, .connect_timeout = absl::Seconds(60)});
    if (!fan_out.ok()) return fan_out.status();
    fan_out_ = *std::move(fan_out);
    const double resident_before = ResidentBytes();
    const auto started = Clock::now();
    const std::vector<size_t> missing = fan_out_->Connect();
    connect_seconds_ = Milliseconds(Clock::now() - started) / 1e3;
    connection_bytes_ = (ResidentBytes() - resident_before) / static_cast<double>(workers_.size());
    if (missing.empty()) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(missing.size(), " of ", workers_.size(), " workers do not answer, ",
                                               fan_out_->address(missing.front()), " is one"));
  }

  LinkObservation Observed() const {
    LinkObservation observed;
    if (link_in_use_ != nullptr) {
      link_in_use_->Await([&observed](LinkLoop& loop) { observed = loop.schedule().Observation(); });
    }
    return observed;
  }

  absl::Status Report(const std::deque<Reader>& readers, double seconds, double cpu_seconds) const {
    const LinkObservation observed = Observed();
    const double lost_seconds = Milliseconds(observed.lost_time - observed_before_.lost_time) / 1e3;
    ReaderResult total;
    for (const Reader& reader : readers) {
      const ReaderResult& result = reader.result();
      total.block_ms.insert(total.block_ms.end(), result.block_ms.begin(), result.block_ms.end());
      total.usual_ms += result.usual_ms;
      total.bytes += result.bytes;
      total.usual_bytes += result.usual_bytes;
      total.errors += result.errors;
      if (!result.error_sample.empty()) total.error_sample = result.error_sample;
      total.retries += result.retries;
      total.hedges += result.hedges;
      total.hedges_won += result.hedges_won;
    }
    const double calls = static_cast<double>(total.block_ms.size() * workers_.size());
    return WriteJsonReport(
        "-",
        {{"blocks", static_cast<double>(total.block_ms.size())},
         {"calls", calls},
         {"bytes", static_cast<double>(total.bytes)},
         {"seconds", seconds},
         {"goodput_bps", seconds > 0 ? 8.0 * static_cast<double>(total.bytes) / seconds : 0},
         // Goodput while usual responses were due. With one reader it is the goodput of everything but the tail.
         {"usual_goodput_bps", total.usual_ms > 0 ? 8e3 * static_cast<double>(total.usual_bytes) / total.usual_ms : 0},
         // Unscheduled: the goodput that the link predicts with a schedule, of a closed loop.
         {"predicted_goodput_bps",
          seconds > lost_seconds && fan_out_ ? 8.0 * static_cast<double>(total.bytes) / (seconds - lost_seconds) : 0},
         {"lost_responses", static_cast<double>(observed.lost_responses - observed_before_.lost_responses)},
         {"held_responses", static_cast<double>(observed.held_responses - observed_before_.held_responses)},
         {"block_ms", total.block_ms},
         {"block_p50_ms", Percentile(total.block_ms, 0.5)},
         {"block_p99_ms", Percentile(total.block_ms, 0.99)},
         {"block_p999_ms", Percentile(total.block_ms, 0.999)},
         {"cpu_seconds", cpu_seconds},
         {"cpu_us_per_call", calls > 0 ? 1e6 * cpu_seconds / calls : 0},
         {"grpc_version", grpc::Version()},
         // Measured before the connections carry calls; only with Sluice.
         {"connect_seconds", connect_seconds_},
         {"connection_bytes", connection_bytes_},
         {"retries", static_cast<double>(total.retries)},
         {"hedges", static_cast<double>(total.hedges)},
         {"hedges_won", static_cast<double>(total.hedges_won)},
         {"errors", static_cast<double>(total.errors)},
         {"error_sample", total.error_sample}});
  }

  std::vector<std::string> workers_;
  std::string mode_ = "fan-out";
  std::string policy_;
  std::string response_bytes_ = "10kb";
  bool unknown_sizes_ = false;
  size_t in_flight_ = 0;  // 0: all
  std::string think_;
  std::string tail_time_;
  std::string hedge_after_;
  std::string timeout_ = "600s";
  std::string start_file_;
  int blocks_ = 10;
  int readers_ = 1;
  double arrivals_per_second_ = 0;  // 0: a closed loop
  int warmup_blocks_ = 0;
  uint32_t seed_ = 1;
  AnswerShape shape_;
  FanOutCallerOptions fan_out_options_;
  sluice::v1::LinkProfile link_;
  Link::Options link_options_;
  Stubs stubs_;
  std::optional<CallCap> cap_;  // only with mode hand-written
  std::shared_ptr<Link> link_in_use_;
  LinkObservation observed_before_;
  std::unique_ptr<FanOut> fan_out_;
  double connect_seconds_ = 0;
  double connection_bytes_ = 0;
};

}  // namespace
}  // namespace sluice::testbed

int main(int argc, char** argv) {
  sluice::testbed::FanOutLoad load;
  return sluice::RunProgram(argc, argv,
                            {.name = "fan_out_load",
                             .description = "Fans out to servers of answers.proto, and reports how long it took.",
                             .add_flags = [&](CLI::App& app) { load.AddFlags(app); },
                             .configure = [&] { return load.Configure(); },
                             .run = [&] { return load.Run(); }});
}

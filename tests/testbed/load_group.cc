#include "tests/testbed/load_group.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/testbed/tunnel_caller.h"

namespace sluice::testbed {
namespace {

using Clock = Window::Clock;

// The warm-up also connects, which may take longer than the timeout of a fan-out.
constexpr absl::Duration kConnectTimeout = absl::Minutes(1);

Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

v1::FanOutRecord& AddRecord(const Window& window, const BlockRecord& record, v1::GroupReport& report) {
  v1::FanOutRecord& added = *report.add_fan_outs();
  added.set_due_s(SecondsBetween(window.start, record.started));
  added.set_ended_s(SecondsBetween(window.start, Clock::now()));
  added.set_bytes(static_cast<double>(record.bytes));
  return added;
}

}  // namespace

double SecondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

absl::Status SharedFanOuts::Add(const v1::LoadGroup& group) {
  if (group.fan_out().empty()) return absl::OkStatus();
  std::vector<std::string>& workers = shared_[group.fan_out()].workers;
  const auto [of_group, of_others] =
      std::mismatch(group.workers().begin(), group.workers().end(), workers.begin(), workers.end());
  if (of_group != group.workers().end() && of_others != workers.end()) {
    return absl::InvalidArgumentError(absl::StrCat("group \"", group.name(), "\": has ", *of_group,
                                                   " where another of ", "fan_out \"", group.fan_out(), "\" has ",
                                                   *of_others));
  }
  workers.insert(workers.end(), of_group, group.workers().end());
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<FanOut>> SharedFanOuts::Get(const v1::LoadGroup& group, std::shared_ptr<Link> link,
                                                           FanOut::Options options) {
  if (group.fan_out().empty()) return FanOut::Create(std::move(link), std::move(options));
  Shared& shared = shared_[group.fan_out()];
  if (shared.fan_out != nullptr) return shared.fan_out;
  options.workers = shared.workers;
  absl::StatusOr<std::unique_ptr<FanOut>> fan_out = FanOut::Create(std::move(link), std::move(options));
  if (!fan_out.ok()) return fan_out.status();
  shared.fan_out = *std::move(fan_out);
  return shared.fan_out;
}

absl::Status LoadGroup::Start(std::shared_ptr<Link> link, const std::string& ca, SharedFanOuts& shared) {
  const std::vector<std::string> workers(config_.workers().begin(), config_.workers().end());
  if (!config_.via().empty()) {
    for (uint32_t i = 0; i < config_.readers(); ++i) tunnels_.push_back(MakeTunnelCaller(workers, config_.via()));
    return absl::OkStatus();
  }
  if (link == nullptr) {
    stubs_ = ConnectByHand(workers);
    return absl::OkStatus();
  }
  FanOut::Options options{.workers = workers, .connect_timeout = kConnectTimeout};
  if (!ca.empty()) options.tls.emplace(TlsOptions{.ca_file = ca});
  absl::StatusOr<std::shared_ptr<FanOut>> fan_out = shared.Get(config_, std::move(link), std::move(options));
  if (!fan_out.ok()) return fan_out.status();
  fan_out_ = *std::move(fan_out);
  return absl::OkStatus();
}

absl::Status LoadGroup::AwaitConnections() {
  if (fan_out_ == nullptr) return absl::OkStatus();
  const std::vector<size_t> missing = fan_out_->Connect();
  if (missing.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("group ", config_.name(), ": ", missing.size(), " of ",
                                             fan_out_->workers(), " workers do not connect, ",
                                             fan_out_->address(missing.front()), " is one of them"));
}

v1::GroupReport LoadGroup::Run(const Window& window) {
  std::vector<v1::GroupReport> reports(config_.readers());
  {
    std::vector<std::jthread> readers;
    for (uint32_t i = 0; i < config_.readers(); ++i) {
      readers.emplace_back([this, &window, i, &report = reports[i]] {
        if (!tunnels_.empty()) return Read(*tunnels_[i], window, i, report);
        Read(*MakeCaller(window), window, i, report);
      });
    }
  }
  v1::GroupReport all;
  for (const v1::GroupReport& report : reports) all.MergeFrom(report);
  all.set_name(config_.name());
  return all;
}

std::unique_ptr<BlockCaller> LoadGroup::MakeCaller(const Window& window) {
  std::optional<Clock::time_point> cut;
  if (window.cut) cut = window.end;
  if (fan_out_ == nullptr) return MakeHandWrittenCaller(stubs_, no_cap_, cut);
  FanOutCallerOptions options{.cut = cut, .sizes_known = !config_.unknown_sizes()};
  options.call.traffic_class = config_.traffic_class();
  if (window.cut) {
    // Messages that are merged after the end do not count, and must not keep the program running.
    options.on_message = [time = Seconds(config_.merge_s()), end = window.end] {
      if (Clock::now() >= end) return absl::CancelledError("the measured part has ended");
      if (time > Clock::duration::zero()) std::this_thread::sleep_for(time);
      return absl::OkStatus();
    };
  }
  return MakeFanOutCaller(*fan_out_, options);
}

void LoadGroup::Read(BlockCaller& caller, const Window& window, uint32_t reader, v1::GroupReport& report) const {
  const AnswerShape shape{.min_bytes = config_.response_bytes(),
                          .max_bytes = config_.response_bytes(),
                          .messages = std::max(1u, config_.messages()),
                          .think_us = static_cast<uint32_t>(1e6 * config_.think_s()),
                          .error_details_bytes = config_.error_details_bytes()};
  AnswerWorkload workload(shape, /*seed=*/reader + 1);
  Clock::time_point due = FirstDue(window, reader);
  for (uint32_t i = 0; config_.fan_outs() == 0 || i < config_.fan_outs(); ++i) {
    if (config_.interval_s() == 0) due = std::max(due, Clock::now());
    if (due >= window.end) return;
    std::this_thread::sleep_until(due);
    // The time of a fan-out starts when it is due: if one is late, the next ones are late, too.
    BlockRecord record{.started = due};
    const absl::Duration time = TimeFor(window);
    const absl::Status status = caller.Call(workload.NextBlock(config_.workers_size()), time, record);
    v1::FanOutRecord& added = AddRecord(window, record, report);
    // A tunnel that the window cuts off may end just before it.
    const bool at_end = time < absl::Seconds(config_.timeout_s()) && absl::IsDeadlineExceeded(status);
    if (window.cut && (at_end || Clock::now() >= window.end)) {
      added.set_outcome(v1::CUT);
    } else if (!status.ok()) {
      added.set_outcome(v1::FAILED);
      report.set_error_sample(status.ToString());
    }
    due += Seconds(config_.interval_s());
  }
}

Clock::time_point LoadGroup::FirstDue(const Window& window, uint32_t reader) const {
  const double turn_s = config_.interval_s() * reader / config_.readers();
  return window.start + Seconds(turn_s + (window.cut ? config_.start_s() : 0));
}

absl::Duration LoadGroup::TimeFor(const Window& window) const {
  const absl::Duration timeout = absl::Seconds(config_.timeout_s());
  if (!window.cut) return std::max(timeout, kConnectTimeout);
  // Other callers cancel at the end. An earlier deadline would change their order in the schedule.
  if (tunnels_.empty()) return timeout;
  // A timeout must be above 0, and the window may have ended.
  return std::clamp(absl::FromChrono(window.end - Clock::now()), absl::Milliseconds(1), timeout);
}

}  // namespace sluice::testbed

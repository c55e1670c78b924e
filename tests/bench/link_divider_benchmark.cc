#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "sluice/v1/link_sharing.pb.h"

#include "benchmark/benchmark.h"
#include "lib/sharing/lease_server.h"
#include "lib/sharing/link_divider.h"
#include "lib/sharing/packet_socket.h"

namespace sluice {
namespace {

constexpr int64_t kBudgetBytes = 524'288;
constexpr std::chrono::nanoseconds kReportPeriod = std::chrono::milliseconds(2);  // of a busy process

// Busy processes that obey their leases, and report in turn, in virtual time. Each class of each has traffic in half of
// the reports.
class BusyProcesses {
 public:
  BusyProcesses(size_t processes, size_t classes) : divider_({.budget_bytes = kBudgetBytes}, TimePoint()) {
    std::vector<std::string> names;
    for (size_t i = 0; i < classes; ++i) names.push_back("class-" + std::to_string(i));
    processes_.resize(processes);
    for (size_t i = 0; i < processes; ++i) divider_.Join(now_, i, 1, names);
    for (ShareReport& process : processes_) process.classes.resize(classes);
  }

  // One report, and the timers before it, as LeaseServer calls them.
  void Report() {
    now_ += kReportPeriod / processes_.size();
    for (TimePoint timer = divider_.NextTimer(); timer <= now_; timer = divider_.NextTimer()) {
      divider_.OnTimer(timer, leases_);
      Take();
    }
    ShareReport& report = processes_[next_];
    report.received_bytes += Below(4000);
    report.in_flight_bytes = std::min<int64_t>(report.limit_bytes, Below(20'000));
    report.demand_bytes = 100'000 + Below(100'000);
    report.need_bytes = 10'000;
    const uint32_t busy = random_() >> 8;
    for (size_t i = 0; i < report.classes.size(); ++i) report.classes[i].demand_bytes = (busy >> i & 1) * 50'000;
    divider_.Report(now_, next_, report, leases_);
    Take();
    next_ = (next_ + 1) % processes_.size();
  }

  int64_t leases() const { return lease_count_; }

 private:
  int64_t Below(uint32_t bound) { return random_() % bound; }

  void Take() {
    lease_count_ += static_cast<int64_t>(leases_.size());
    for (const ShareLease& lease : leases_) {
      processes_[lease.client].acknowledged = lease.id;
      processes_[lease.client].limit_bytes = lease.bytes;
    }
    leases_.clear();
  }

  TimePoint now_ = TimePoint(std::chrono::seconds(1));
  LinkDivider divider_;
  std::vector<ShareReport> processes_;
  std::vector<ShareLease> leases_;
  std::minstd_rand random_{1};
  int64_t lease_count_ = 0;
  size_t next_ = 0;
};

// The time of an iteration is that of one report. `cores` is the part of a core that all processes need, without the
// sockets.
void BM_Report(benchmark::State& state) {
  const auto processes = static_cast<size_t>(state.range(0));
  BusyProcesses link(processes, static_cast<size_t>(state.range(1)));
  while (state.KeepRunning()) link.Report();
  const auto reports = static_cast<double>(state.iterations());
  const double per_second = static_cast<double>(processes) / std::chrono::duration<double>(kReportPeriod).count();
  state.counters["leases"] = static_cast<double>(link.leases()) / reports;
  state.counters["cores"] =
      benchmark::Counter(reports / per_second, benchmark::Counter::Flags::kIsRate | benchmark::Counter::Flags::kInvert);
}
BENCHMARK(BM_Report)->ArgsProduct({{16, 64, 256}, {0, 1, 2, 16}})->Unit(benchmark::kMicrosecond);

// A daemon on a thread of its own, and the sockets of busy processes.
class Daemon {
 public:
  Daemon(size_t processes, size_t classes) {
    std::filesystem::create_directories(folder_);
    const std::string path = folder_ + "/link.sock";
    server_ = *LeaseServer::Start(context_, {.socket = path, .shares = {.budget_bytes = kBudgetBytes}}, registry_);
    v1::ToLinkDaemon hello;
    hello.mutable_hello()->set_application("bench");
    hello.mutable_hello()->set_weight(1);
    for (size_t i = 0; i < classes; ++i) hello.mutable_hello()->add_classes("class-" + std::to_string(i));
    processes_.resize(processes);
    for (Process& process : processes_) {
      process.fd = Connect(path);
      SendPacket(process.fd, hello).IgnoreError();
      for (size_t i = 0; i < classes; ++i) process.report.mutable_report()->add_classes()->set_weight(1);
    }
  }
  ~Daemon() {
    server_.reset();
    work_.reset();
    thread_.join();
    for (const Process& process : processes_) close(process.fd);
    std::filesystem::remove_all(folder_);
  }

  // Each process reports once within the period of reports, or less often if its lease contains a longer pause, and
  // when its lease became smaller. Returns the CPU time of the daemon, in seconds.
  double Round() {
    constexpr size_t kSteps = 20;
    const double before = CpuSeconds();
    const auto began = std::chrono::steady_clock::now();
    for (size_t step = 0; step < kSteps; ++step) {
      for (Process& process : processes_) {
        const auto since = std::chrono::steady_clock::now() - process.reported_at;
        if (TakeLeases(process) || since >= std::max(process.pause, kReportPeriod)) Report(process);
      }
      std::this_thread::sleep_until(began + kReportPeriod * (step + 1) / kSteps);
    }
    return CpuSeconds() - before;
  }
  int64_t leases() const { return leases_; }
  int64_t reports() const { return reports_; }  // a daemon that is late refuses some

 private:
  struct Process {
    int fd = -1;
    v1::ToLinkDaemon report;
    std::chrono::nanoseconds pause{0};
    std::chrono::steady_clock::time_point reported_at;
  };

  // Waits while too many connections wait for the daemon.
  static int Connect(const std::string& path) {
    while (true) {
      if (const auto fd = ConnectPacketSocket(path); fd.ok()) return *fd;
      std::this_thread::yield();
    }
  }

  double CpuSeconds() {
    clockid_t clock{};
    timespec time{};
    pthread_getcpuclockid(thread_.native_handle(), &clock);
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  }

  // Returns whether the lease became smaller.
  bool TakeLeases(Process& process) {
    v1::LinkReport& report = *process.report.mutable_report();
    const int64_t before_bytes = report.limit_bytes();
    v1::FromLinkDaemon message;
    while (ReceivePacket(process.fd, message).value_or(false)) {
      report.set_acknowledged(message.lease().id());
      report.set_limit_bytes(message.lease().bytes());
      process.pause = std::chrono::nanoseconds(message.lease().report_pause_ns());
      ++leases_;
    }
    return report.limit_bytes() < before_bytes;
  }

  void Report(Process& process) {
    v1::LinkReport& report = *process.report.mutable_report();
    process.reported_at = std::chrono::steady_clock::now();
    report.set_sent_ns(std::chrono::steady_clock::now().time_since_epoch().count());
    report.set_received_bytes(report.received_bytes() + random_() % 4000);
    report.set_in_flight_bytes(std::min<int64_t>(report.limit_bytes(), random_() % 20'000));
    report.set_demand_bytes(100'000 + random_() % 100'000);
    report.set_need_bytes(10'000);
    uint32_t busy = random_() >> 8;
    for (v1::LinkClass& each : *report.mutable_classes()) each.set_demand_bytes((busy & 1) * 50'000), busy >>= 1;
    if (SendPacket(process.fd, process.report).ok()) ++reports_;
  }

  const std::string folder_ = "/tmp/sluice-bench-" + std::to_string(getpid());
  boost::asio::io_context context_;
  prometheus::Registry registry_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_ = make_work_guard(context_);
  std::thread thread_{[this] { context_.run(); }};
  std::unique_ptr<LeaseServer> server_;
  std::vector<Process> processes_;
  std::minstd_rand random_{1};
  int64_t leases_ = 0;
  int64_t reports_ = 0;
};

// `us` is the CPU time of the daemon for each report, with its sockets, and `taken` the part of the reports that it had
// room for.
void BM_Daemon(benchmark::State& state) {
  const auto processes = static_cast<size_t>(state.range(0));
  Daemon daemon(processes, static_cast<size_t>(state.range(1)));
  for (int i = 0; i < 200; ++i) daemon.Round();  // until it divides
  const int64_t leases = daemon.leases();
  const int64_t reports_before = daemon.reports();
  const auto began = std::chrono::steady_clock::now();
  double seconds = 0;
  for (const auto iteration : state) {
    static_cast<void>(iteration);
    const double round = daemon.Round();
    state.SetIterationTime(round);
    seconds += round;
  }
  const auto reports = static_cast<double>(daemon.reports() - reports_before);
  state.counters["us"] = 1e6 * seconds / reports;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began;
  state.counters["cores"] = seconds / elapsed.count();
  state.counters["leases"] = static_cast<double>(daemon.leases() - leases) / reports;
  state.counters["taken"] = reports / static_cast<double>(state.iterations() * state.range(0));
}
BENCHMARK(BM_Daemon)->ArgsProduct({{16, 256}, {0, 1, 16}})->UseManualTime()->Iterations(300);

}  // namespace
}  // namespace sluice

BENCHMARK_MAIN();

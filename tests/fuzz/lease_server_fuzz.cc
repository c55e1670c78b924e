// Sends arbitrary packets of up to four processes that share a link to LeaseServer. Leases must fit the budget, counts
// must add up, and one process's packets must not reduce the shares of the others.
//
// The input is steps: a byte that selects the step and the process, then its parameters.
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>  // Boost 1.74 needs it and does not include it in C++20

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <google/protobuf/stubs/logging.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sluice/v1/link_sharing.pb.h"

#include "lib/sharing/lease_server.h"
#include "lib/sharing/packet_socket.h"
#include "prometheus/registry.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_socket.h"

namespace sluice {
namespace {

constexpr int64_t kBudgetBytes = 100'000;

class LeaseServerFuzz {
 public:
  explicit LeaseServerFuzz(FuzzInput input) : input_(input) {
    const uint8_t choice = input_.Byte();
    server_ = *LeaseServer::Start(context_,
                                  {.socket = FuzzSocketPath(),
                                   .shares = {.budget_bytes = kBudgetBytes,
                                              .mode = choice % 2 == 0 ? SharingMode::kWeighted : SharingMode::kFifo,
                                              .start_grace = std::chrono::milliseconds(choice % 4 < 2 ? 0 : 300)},
                                   .on_event = [this](const SharingEvent& event) { OnEvent(event); }},
                                  registry_);
  }

  // The server's destructor waits for its thread.
  ~LeaseServerFuzz() {
    for (Process& process : processes_) process.Close();
    auto work = boost::asio::make_work_guard(context_);
    context_.restart();
    std::thread thread([this] { context_.run(); });
    server_.reset();
    work.reset();
    thread.join();
    FUZZ_CHECK(left_ <= joined_);
  }

  void Run() {
    while (!input_.empty()) {
      Step();
      Turn();
    }
    CheckGauges();
  }

 private:
  struct Process {
    int fd = -1;
    uint64_t lease_id = 0;
    void Close() {
      if (fd >= 0) close(fd);
      fd = -1;
    }
  };

  void OnEvent(const SharingEvent& event) {
    joined_ += event.kind == SharingEvent::Kind::kJoined;
    left_ += event.kind == SharingEvent::Kind::kLeft;
    FUZZ_CHECK(event.uid == geteuid() && event.pid == getpid());
    FUZZ_CHECK((event.kind == SharingEvent::Kind::kRefused) == !event.reason.empty());
  }

  void Step() {
    const uint8_t op = input_.Byte();
    Process& process = processes_[op % processes_.size()];
    if (process.fd < 0) {
      process = {.fd = *ConnectPacketSocket(FuzzSocketPath())};
      Turn();
    }
    v1::ToLinkDaemon message;
    switch (op / 4 % 8) {
      case 0:
        process.Close();
        return;
      case 1: {
        const absl::string_view bytes = input_.Take(input_.Byte());
        (void)send(process.fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        return;
      }
      case 2:
      case 3:
        message.mutable_hello()->set_application(std::string(input_.Take(input_.Byte())));
        message.mutable_hello()->set_weight(input_.Double());
        for (int i = input_.Byte() % 4; i > 0; --i) {
          message.mutable_hello()->add_classes(std::string(input_.Take(input_.Byte() % 40)));
        }
        break;
      case 4:
        message.mutable_hello()->set_application("fuzz");
        message.mutable_hello()->set_weight(1);
        message.mutable_hello()->add_classes("interactive");
        message.mutable_hello()->add_classes("batch");
        break;
      default:
        Fill(process, *message.mutable_report());
    }
    SendPacket(process.fd, message).IgnoreError();
  }

  void Fill(const Process& process, v1::LinkReport& report) {
    const uint8_t given = input_.Byte();
    report.set_sent_ns(input_.Int64());
    report.set_acknowledged(given & 1 ? process.lease_id : static_cast<uint64_t>(input_.Int64()));
    report.set_demand_bytes(given & 2 ? input_.Int64() : 50'000);
    report.set_need_bytes(given & 4 ? input_.Int64() : 2'000);
    if (given & 8) report.set_limit_bytes(input_.Int64());
    if (given & 16) report.set_in_flight_bytes(input_.Int64());
    if (given & 32) report.set_received_bytes(input_.Int64());
    if (given & 64) report.set_oldest_block(static_cast<uint64_t>(input_.Int64()));
    if (given & 128) report.set_oldest_block_age_ns(input_.Int64());
    for (int i = input_.Byte() % 4; i > 0; --i) {
      v1::LinkClass& of = *report.add_classes();
      of.set_weight(input_.Double());
      of.set_demand_bytes(input_.Int64());
      of.set_received_bytes(input_.Int64());
    }
  }

  // Handles the received packets, and checks the server's messages.
  void Turn() {
    context_.restart();
    while (context_.poll() > 0) {
    }
    for (Process& process : processes_) {
      while (process.fd >= 0) {
        v1::FromLinkDaemon message;
        const absl::StatusOr<bool> received = ReceivePacket(process.fd, message);
        FUZZ_CHECK(received.ok() || absl::IsUnavailable(received.status()));
        if (!received.ok()) process.Close();
        if (!received.value_or(false)) break;
        FUZZ_CHECK(message.has_lease() || !message.refusal().reason().empty());
        if (message.has_lease()) CheckLease(process, message.lease());
      }
    }
  }

  static void CheckLease(Process& process, const v1::LinkLease& lease) {
    FUZZ_CHECK(lease.link_bytes() == kBudgetBytes && lease.valid_ns() > 0);
    FUZZ_CHECK(lease.bytes() >= 0 && lease.bytes() <= kBudgetBytes);
    FUZZ_CHECK(lease.safe_bytes() >= 0 && lease.safe_bytes() <= kBudgetBytes);
    FUZZ_CHECK(lease.id() >= process.lease_id);
    process.lease_id = lease.id();
  }

  void CheckGauges() const {
    for (const prometheus::MetricFamily& family : server_->Collect()) {
      double sum = 0;
      for (const prometheus::ClientMetric& metric : family.metric) {
        FUZZ_CHECK(metric.gauge.value >= 0);
        sum += metric.gauge.value;
      }
      if (family.name == "sluice_sharing_lease_bytes") FUZZ_CHECK(sum <= kBudgetBytes);
      if (family.name == "sluice_sharing_processes") FUZZ_CHECK(sum == joined_ - left_);
    }
  }

  FuzzInput input_;
  prometheus::Registry registry_;
  boost::asio::io_context context_;
  std::array<Process, 4> processes_;
  int joined_ = 0;
  int left_ = 0;
  std::unique_ptr<LeaseServer> server_;
};

}  // namespace
}  // namespace sluice

// Protobuf logs names that are not UTF-8 to stderr.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::LeaseServerFuzz(sluice::FuzzInput(data, size)).Run();
  return 0;
}

// Sends arbitrary packets of a daemon to LeaseClient. A LinkSchedule must accept every lease that it applies, the lease
// must be within the link, and the client's reports must be consistent.
//
// The input is steps: a byte that selects the step, then its parameters.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>  // Boost 1.74 needs it and does not include it in C++20
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <google/protobuf/stubs/logging.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sluice/v1/link_sharing.pb.h"

#include "lib/scheduling/link_schedule.h"
#include "lib/sharing/lease_client.h"
#include "lib/sharing/packet_socket.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_socket.h"

namespace sluice {
namespace {

class LeaseClientFuzz {
 public:
  explicit LeaseClientFuzz(FuzzInput input) : input_(input), schedule_({}) {
    Listen();
    client_ = std::make_unique<LeaseClient>(
        context_, LeaseClient::Options{.socket = FuzzSocketPath(),
                                       .application = "fuzz",
                                       .start_bytes = 4096,
                                       .link_bytes = 32'768,
                                       .demand = [this] { return schedule_.Demand(Now()); },
                                       .apply = [this](const BudgetLease& lease) { Apply(lease); },
                                       .on_state = [this](const absl::Status& state) { state_ = state; }});
    Turn();
  }

  // The client's destructor waits for its thread.
  ~LeaseClientFuzz() {
    if (fd_ >= 0) close(fd_);
    auto work = boost::asio::make_work_guard(context_);
    context_.restart();
    std::thread thread([this] { context_.run(); });
    client_.reset();
    work.reset();
    thread.join();
  }

  void Run() {
    while (!input_.empty()) {
      Step();
      Turn();
    }
  }

 private:
  static TimePoint Now() { return std::chrono::steady_clock::now(); }

  void Listen() { listening_.emplace(*ListeningSocket::Open(FuzzSocketPath(), 0600, std::nullopt)); }

  void Apply(const BudgetLease& lease) {
    FUZZ_CHECK(schedule_.SetLease(Now(), lease, actions_).ok());
    FUZZ_CHECK(lease.bytes >= 0 && lease.bytes <= lease.link_bytes);
    // No lease may be permanent, or longer than an hour.
    FUZZ_CHECK(lease.bytes == 0 || lease.until <= Now() + std::chrono::hours(1));
  }

  void Step() {
    const uint8_t op = input_.Byte();
    v1::FromLinkDaemon message;
    switch (op % 8) {
      case 0:
        Close();
        return;
      case 1: {
        const absl::string_view bytes = input_.Take(input_.Byte());
        if (fd_ >= 0) (void)send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        return;
      }
      case 2:
        message.mutable_refusal()->set_reason(std::string(input_.Take(input_.Byte())));
        break;
      case 3:
        Submit();
        return;
      default:
        Fill(*message.mutable_lease());
    }
    if (fd_ >= 0) SendPacket(fd_, message).IgnoreError();
  }

  void Submit() {
    const CallRequest call{.response_bytes = input_.Byte() * 1000};
    if (schedule_.Submit(Now(), {&call, 1}, TimePoint::max(), actions_).ok()) {
      client_->OnDemand(schedule_.Demand(Now()));
    }
  }

  void Fill(v1::LinkLease& lease) {
    const uint8_t given = input_.Byte();
    lease.set_id(given & 1 ? static_cast<uint64_t>(input_.Int64()) : ++last_id_);
    lease.set_bytes(given & 2 ? input_.Int64() : 16'384);
    lease.set_valid_ns(given & 4 ? input_.Int64() : 250'000'000);
    lease.set_report_sent_ns(given & 8 ? input_.Int64() : sent_ns_);
    lease.set_link_bytes(given & 16 ? input_.Int64() : 65'536);
    lease.set_safe_bytes(given & 32 ? input_.Int64() : 8'192);
    lease.set_by_block(given & 64);
  }

  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

  // Handles the received packets, and checks the client's messages.
  void Turn() {
    context_.restart();
    while (context_.poll() > 0) {
    }
    if (fd_ < 0) fd_ = AcceptPacketSocket(listening_->fd()).value_or(-1);
    while (fd_ >= 0) {
      v1::ToLinkDaemon message;
      const absl::StatusOr<bool> received = ReceivePacket(fd_, message);
      FUZZ_CHECK(received.ok() || absl::IsUnavailable(received.status()));
      if (!received.ok()) Close();
      if (!received.value_or(false)) return;
      if (message.has_report()) CheckReport(message.report());
    }
  }

  void CheckReport(const v1::LinkReport& report) {
    FUZZ_CHECK(report.sent_ns() >= sent_ns_ && report.sent_ns() <= Now().time_since_epoch().count());
    sent_ns_ = report.sent_ns();
    FUZZ_CHECK(report.limit_bytes() >= 0 && report.demand_bytes() >= 0 && report.in_flight_bytes() >= 0);
    FUZZ_CHECK(report.need_bytes() >= 0 && report.received_bytes() >= 0 && report.oldest_block_age_ns() >= 0);
  }

  FuzzInput input_;
  boost::asio::io_context context_;
  LinkSchedule schedule_;
  std::vector<Action> actions_;
  std::optional<ListeningSocket> listening_;
  int fd_ = -1;
  int64_t sent_ns_ = 0;
  uint64_t last_id_ = 0;
  absl::Status state_;
  std::unique_ptr<LeaseClient> client_;
};

}  // namespace
}  // namespace sluice

// Protobuf logs reasons that are not UTF-8 to stderr.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::LeaseClientFuzz(sluice::FuzzInput(data, size)).Run();
  return 0;
}

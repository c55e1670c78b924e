#pragma once

#include <functional>
#include <optional>
#include <string>

#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sluice/v1/link_sharing.pb.h"

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "lib/sharing/packet_socket.h"
#include "tests/unit/sharing/sharing_process.h"
#include "tests/wait_until.h"

namespace sluice {

// A process that a protocol test controls message by message.
class RawProcess {
 public:
  explicit RawProcess(const std::string& socket) : fd_(ConnectPacketSocket(socket).value()) {}
  ~RawProcess() { close(fd_); }

  void Hello(const std::string& application, double weight, const std::vector<std::string>& classes = {}) {
    v1::ToLinkDaemon message;
    message.mutable_hello()->set_application(application);
    message.mutable_hello()->set_weight(weight);
    for (const std::string& name : classes) message.mutable_hello()->add_classes(name);
    EXPECT_EQ(SendPacket(fd_, message), absl::OkStatus());
  }
  void Report(int64_t demand_bytes) {
    v1::ToLinkDaemon message;
    message.mutable_report()->set_sent_ns(1);
    message.mutable_report()->set_demand_bytes(demand_bytes);
    message.mutable_report()->set_need_bytes(1000);
    EXPECT_EQ(SendPacket(fd_, message), absl::OkStatus());
  }
  void ReportClasses(const std::vector<ClassDemand>& classes) {
    v1::ToLinkDaemon message;
    v1::LinkReport& report = *message.mutable_report();
    report.set_sent_ns(1);
    report.set_need_bytes(1000);
    int64_t demand_bytes = 0;
    for (const ClassDemand& of : classes) {
      demand_bytes += of.demand_bytes;
      v1::LinkClass& to = *report.add_classes();
      to.set_weight(of.weight);
      to.set_demand_bytes(of.demand_bytes);
      to.set_received_bytes(of.received_bytes);
    }
    report.set_demand_bytes(demand_bytes);
    EXPECT_EQ(SendPacket(fd_, message), absl::OkStatus());
  }
  // Returns the weights of the first lease with any.
  std::vector<double> ClassWeights() {
    for (auto message = Receive(); message.ok(); message = Receive()) {
      const auto& weights = message->lease().class_weights();
      if (!weights.empty()) return {weights.begin(), weights.end()};
    }
    return {};
  }
  bool Send(const v1::ToLinkDaemon& message) { return SendPacket(fd_, message).ok(); }
  void Bytes(const std::string& bytes) { EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), 0), std::ssize(bytes)); }

  // Returns the next message, or the error of the connection.
  absl::StatusOr<v1::FromLinkDaemon> Receive() {
    v1::FromLinkDaemon message;
    timeval patience{.tv_sec = absl::ToInt64Seconds(kPatience), .tv_usec = 0};
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(fd_, &readable);
    if (select(fd_ + 1, &readable, nullptr, nullptr, &patience) != 1)
      return absl::DeadlineExceededError("nothing came");
    const absl::StatusOr<bool> received = ReceivePacket(fd_, message);
    if (!received.ok()) return received.status();
    return message;
  }
  std::string Refusal() {
    while (true) {
      const auto message = Receive();
      if (!message.ok()) return "no refusal: " + message.status().ToString();
      if (message->has_refusal()) return message->refusal().reason();
    }
  }

 private:
  const int fd_;
};

// A daemon for tests of a process's messages: it accepts one process, and acts at the test's command.
class RawDaemon {
 public:
  explicit RawDaemon(const std::string& socket) : listening_(*ListeningSocket::Open(socket, 0600, std::nullopt)) {}
  ~RawDaemon() {
    if (fd_ >= 0) close(fd_);
  }

  // Returns the next report for which `wanted` returns true, or nothing.
  std::optional<v1::LinkReport> AwaitReport(const std::function<bool(const v1::LinkReport&)>& wanted) {
    v1::ToLinkDaemon message;
    const auto said = [&] {
      if (fd_ < 0) fd_ = AcceptPacketSocket(listening_.fd()).value_or(-1);
      while (fd_ >= 0 && ReceivePacket(fd_, message).value_or(false)) {
        if (message.has_report() && wanted(message.report())) return true;
      }
      return false;
    };
    return WaitUntil(said, kPatience) ? std::optional(message.report()) : std::nullopt;
  }
  void Lease(const v1::LinkLease& lease) {
    v1::FromLinkDaemon message;
    *message.mutable_lease() = lease;
    EXPECT_EQ(SendPacket(fd_, message), absl::OkStatus());
  }

 private:
  const ListeningSocket listening_;
  int fd_ = -1;
};

}  // namespace sluice

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/link/link_loop.h"
#include "lib/link/scheduled_connection.h"
#include "tests/simulation/byte_worker.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/simulated_executor.h"
#include "tests/simulation/simulated_loopback.h"

namespace sluice::testing {

// A client of a byte worker, which checks every byte of the responses. There is one for each tunnel.
class ByteClient {
 public:
  struct Outcome {
    bool complete = false;
    bool right = true;  // all bytes that came
  };
  using OnOutcome = std::function<void(const Outcome&)>;

  virtual ~ByteClient() = default;

  // Sends requests without waiting for the responses in between, and waits for all of them. The previous requests must
  // have ended.
  void Ask(const std::vector<ByteRequest>& requests, OnOutcome on_outcome);
  virtual void SetReading(bool reading) = 0;
  void Die();

  bool busy() const { return on_outcome_ != nullptr; }
  bool over() const { return over_; }

 protected:
  // The connection.
  virtual void Write(std::string bytes) = 0;
  virtual void Close() = 0;

  void OnResponse(absl::string_view bytes);
  void OnClosed();

 private:
  void End(bool complete);

  bool over_ = false;
  bool right_ = true;
  std::string expected_;  // the rest of the responses
  OnOutcome on_outcome_;
};

// Reaches its worker by CONNECT through the proxy.
class ProxiedByteClient final : public ByteClient {
 public:
  // The arguments must outlive the client.
  ProxiedByteClient(EventQueue& events, SimulatedExecutor& executor, std::string worker);
  ~ProxiedByteClient() override;

  // Returns the proxy's end of the connection. Call it once.
  AcceptedSocket Connect() { return loopback_->Accept(); }
  void SetReading(bool reading) override { loopback_->SetReading(reading); }

 private:
  void Write(std::string bytes) override;
  void Close() override { loopback_->Close(); }
  void OnBytes(const std::string& bytes);

  const std::string worker_;
  const std::shared_ptr<SimulatedLoopback> loopback_;
  bool open_ = false;   // the proxy has accepted the CONNECT
  std::string head_;    // the received part of the response to the CONNECT
  std::string unsent_;  // requests before that
};

// Reaches its worker by the connection of a LinkStream. LinkStream itself needs threads.
class StreamByteClient final : public ByteClient, private ScheduledConnection::User {
 public:
  // The first two arguments must outlive the client, except if it has died.
  StreamByteClient(SimulatedExecutor& executor, LinkLoop& loop, const std::string& worker);
  ~StreamByteClient() override { Close(); }

  void SetReading(bool reading) override;

 private:
  void Write(std::string bytes) override;
  void Close() override;

  // ScheduledConnection::User.
  void OnOpen() override;
  bool OnBytes(absl::string_view bytes) override;
  void OnWritten() override { written_ = true; }
  void OnEnded() override {}
  void OnOver(const absl::Status& why, int error_number) override;

  void Flush();

  SimulatedExecutor& executor_;
  LinkLoop& loop_;
  std::shared_ptr<ScheduledConnection> connection_;  // null: over
  bool open_ = false;
  bool written_ = true;  // the last request
  bool reading_ = true;
  std::string unsent_;
  std::string unread_;
};

}  // namespace sluice::testing

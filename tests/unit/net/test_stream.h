#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/net/executor.h"
#include "lib/tls/tls_context.h"
#include "tests/unit/net/link_thread.h"

namespace sluice::testing {

class TestStream;

// Called on the link's thread, after the event was logged.
struct TestStreamHooks {
  std::function<void(TestStream&)> on_connected = [](TestStream&) {};
  std::function<void(TestStream&)> on_bytes = [](TestStream&) {};
  std::function<void(TestStream&)> on_disconnected = [](TestStream&) {};
  bool half_open = false;  // as in Executor::ConnectOptions
};

// One stream of an executor, and a log of its events: "connected", "half closed", "ended: OK". For the test's thread,
// except the hooks.
class TestStream final : public StreamSocketEvents {
 public:
  using Hooks = TestStreamHooks;

  TestStream(Executor& executor, const WorkerAddress& address, std::shared_ptr<const TlsContext> tls = nullptr,
             Hooks hooks = Hooks())
      : executor_(executor), hooks_(std::move(hooks)) {
    RunOn(executor_, [&] {
      socket_ = executor_.Connect(
          address, {.tls = std::move(tls), .server_name = "localhost", .half_open = hooks_.half_open}, *this);
      EXPECT_TRUE(log_.events().empty());  // no event may be called within Connect
    });
  }
  ~TestStream() override {
    RunOn(executor_, [this] { socket_.reset(); });
  }

  void Write(std::string bytes) {
    RunOn(executor_, [&] {
      const size_t before = log_.events().size();
      socket_->Write(std::move(bytes));
      EXPECT_EQ(log_.events().size(), before);
    });
  }
  // For the link's thread.
  std::unique_ptr<StreamSocket>& socket() { return socket_; }

  EventLog& log() { return log_; }
  // Returns the received bytes once there are at least `count`.
  std::string AwaitBytes(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    came_.wait_for(lock, absl::ToChronoSeconds(kPatience), [&] { return received_.size() >= count; });
    return received_;
  }
  std::string received() { return AwaitBytes(0); }

  void OnConnected() override {
    log_.Add("connected");
    hooks_.on_connected(*this);
  }
  void OnBytes(absl::string_view bytes) override {
    EXPECT_FALSE(bytes.empty());
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      received_.append(bytes.data(), bytes.size());
      came_.notify_all();
    }
    hooks_.on_bytes(*this);
  }
  void OnEnded() override { log_.Add("half closed"); }
  void OnDisconnected(absl::Status why) override {
    log_.Add(absl::StrCat("ended: ", why.ToString()));
    hooks_.on_disconnected(*this);
  }

 private:
  Executor& executor_;
  const Hooks hooks_;
  EventLog log_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::string received_;  // guarded by mutex_
  std::unique_ptr<StreamSocket> socket_;
};

}  // namespace sluice::testing

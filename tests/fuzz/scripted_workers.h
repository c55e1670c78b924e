#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/grpc_wire/message_reader.h"
#include "lib/grpc_wire/request_parser.h"
#include "lib/grpc_wire/response_head.h"
#include "lib/http2/session.h"
#include "lib/net/executor.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/simulation/event_queue.h"

namespace sluice {

// A worker's response to one request.
struct ScriptedAnswer {
  enum class End { kStatus, kHang, kReset, kLost };
  std::string data;  // sent unchanged: messages with their prefixes, or any other bytes
  End end = End::kStatus;
  absl::Status status;  // with kStatus
};

// The network of a link whose workers respond by a script, in virtual time. Every address is such a worker, and bytes
// take 10 us. One for each run of a fuzzer. Not thread-safe.
class ScriptedWorkers final : public Executor {
 public:
  using Script = std::function<ScriptedAnswer(const std::string& path, const std::string& request)>;

  ScriptedWorkers(testing::EventQueue& events, Script script) : events_(events), script_(std::move(script)) {}

  // Allows requests whose bytes are not messages, because a proxy forwards such requests. They receive no response.
  void set_any_request(bool any) { any_request_ = any; }

  // Runs `task` as a turn of the link's thread.
  void Turn(const std::function<void()>& task) {
    task();
    if (end_of_turn_) end_of_turn_();
  }

  TimePoint Now() const override { return events_.now(); }
  void Post(std::function<void()> task) override {
    events_.After(kDelay, [this, task = std::move(task)] { Turn(task); });
  }
  void SetEndOfTurn(std::function<void()> task) override { end_of_turn_ = std::move(task); }
  void SetTimer(TimePoint time, std::function<void()> task) override {
    events_.Cancel(timer_);
    if (time != TimePoint::max()) timer_ = events_.At(time, [this, task = std::move(task)] { Turn(task); });
  }
  double Random() override { return 0.5; }
  std::shared_ptr<void> Resolve(const std::string& target, OnResolved on_resolved) override {
    auto question = std::make_shared<OnResolved>(std::move(on_resolved));
    events_.After(kDelay, [this, target, weak = std::weak_ptr<OnResolved>(question)] {
      const auto asked = weak.lock();
      if (asked == nullptr) return;
      Turn([&] {
        const OnResolved answer = *asked;
        answer(std::vector<WorkerAddress>{{target}});
      });
    });
    return question;
  }
  std::unique_ptr<StreamSocket> Connect(const WorkerAddress&, const ConnectOptions&,
                                        StreamSocketEvents& events) override {
    auto wire = std::make_shared<Wire>(*this, events);
    events_.After(kDelay, [wire] { wire->Begin(); });
    return std::make_unique<Socket>(std::move(wire));
  }

 private:
  static constexpr std::chrono::microseconds kDelay{10};

  // One connection: the client's events, and the worker's session.
  class Wire final : public SessionEvents, public std::enable_shared_from_this<Wire> {
   public:
    Wire(ScriptedWorkers& world, StreamSocketEvents& client) : world_(world), client_(&client) {}

    void Begin() {
      if (client_ == nullptr) return;
      session_ =
          *Http2Session::Create({.side = Http2Session::Side::kServer, .max_unsent_bytes_per_stream = 16u << 20}, *this);
      world_.Turn([this] { client_->OnConnected(); });
      Flush();
    }
    void Write(std::string bytes) {
      world_.events_.After(kDelay, [self = shared_from_this(), bytes = std::move(bytes)] { self->Receive(bytes); });
    }
    void Close() { client_ = nullptr; }

   private:
    struct Call final : StreamEvents {
      Call(Wire& owner, int32_t stream) : wire(owner), id(stream) {}
      Wire& wire;
      const int32_t id;
      std::string path;
      MessageReader request{1 << 16};

      void OnHeaders(HeaderList headers, bool) override {
        const auto head = ParseRequestHead(std::move(headers));
        FUZZ_CHECK(head.ok());
        path = head->path;
      }
      void OnData(absl::string_view bytes, size_t, bool end_stream) override {
        const bool ok = request.Read(bytes).ok();
        FUZZ_CHECK(ok || wire.world_.any_request_);
        WireMessage message;
        if (ok && end_stream && request.TakeMessage(message)) wire.Answer(id, wire.world_.script_(path, message.bytes));
      }
      void OnClosed(StreamEnd) override {}
    };

    StreamEvents* OnStream(int32_t id) override {
      return calls_.emplace(id, std::make_unique<Call>(*this, id)).first->second.get();
    }

    void Receive(const std::string& bytes) {
      if (session_ == nullptr) return;
      FUZZ_CHECK(session_->Receive(bytes).ok());  // the client must obey the protocol, whatever workers do
      Flush();
      if (std::exchange(lost_, false)) Lose();
    }

    void Answer(int32_t id, ScriptedAnswer answer) {
      if (answer.end == ScriptedAnswer::End::kStatus && !answer.status.ok() && answer.data.empty()) {
        return session_->SendHeaders(id, ToTrailersOnly(answer.status, "", {}), true);
      }
      session_->SendHeaders(id, ToHeaders(ResponseHead{}), false);
      (void)session_->SendData(id, std::move(answer.data), false);
      switch (answer.end) {
        case ScriptedAnswer::End::kStatus:
          return session_->SendHeaders(id, ToTrailers(answer.status, "", {}), true);
        case ScriptedAnswer::End::kReset:
          return session_->Reset(id, Http2Error::kInternalError);
        case ScriptedAnswer::End::kLost:
          lost_ = true;
          return;
        case ScriptedAnswer::End::kHang:
          return;
      }
    }

    void Flush() {
      std::string out;
      session_->Output(out);
      if (out.empty()) return;
      world_.events_.After(kDelay, [self = shared_from_this(), out = std::move(out)] {
        if (self->client_ == nullptr) return;
        self->world_.Turn([&] { self->client_->OnBytes(out); });
      });
    }

    void Lose() {
      session_.reset();
      world_.events_.After(kDelay, [self = shared_from_this()] {
        StreamSocketEvents* const client = std::exchange(self->client_, nullptr);
        if (client == nullptr) return;
        self->world_.Turn([client] { client->OnDisconnected(absl::UnavailableError("connection reset by peer")); });
      });
    }

    ScriptedWorkers& world_;
    StreamSocketEvents* client_;                      // null once the client has closed the connection
    std::map<int32_t, std::unique_ptr<Call>> calls_;  // before the session, because calls must outlive their streams
    std::unique_ptr<Http2Session> session_;           // null if not connected, or lost
    bool lost_ = false;                               // lose the connection after the received bytes are handled
  };

  // The client's end of the connection. Destroying it closes the connection.
  class Socket final : public StreamSocket {
   public:
    explicit Socket(std::shared_ptr<Wire> wire) : wire_(std::move(wire)) {}
    ~Socket() override { wire_->Close(); }
    void Write(std::string bytes) override { wire_->Write(std::move(bytes)); }
    size_t unsent_bytes() const override { return 0; }
    void SetReading(bool) override {}  // a client of workers never stops reading
    std::optional<TcpSocket> Tcp() const override { return std::nullopt; }

   private:
    const std::shared_ptr<Wire> wire_;
  };

  testing::EventQueue& events_;
  const Script script_;
  bool any_request_ = false;
  std::function<void()> end_of_turn_;
  testing::EventQueue::Id timer_;
};

}  // namespace sluice

#include "tests/simulation/simulated_worker.h"

#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/grpc_wire/message_reader.h"
#include "lib/grpc_wire/request.h"
#include "lib/grpc_wire/response_head.h"
#include "tests/grpc_wire/server_call.h"

namespace sluice::testing {

// Eight bytes at a time, by splitmix64.
std::string AnswerOf(uint64_t key, size_t bytes) {
  std::string answer(bytes + sizeof(uint64_t), '\0');
  uint64_t state = key * 0x2545f4914f6cdd1d + bytes;
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    state += 0x9e3779b97f4a7c15;
    uint64_t mixed = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    mixed ^= mixed >> 31;
    std::memcpy(answer.data() + i, &mixed, sizeof(mixed));
  }
  answer.resize(bytes);
  return answer;
}

std::string RequestFor(uint64_t key, size_t bytes, size_t messages) {
  return absl::StrCat(key, " ", bytes, " ", messages);
}

// One call, as the worker serves it.
class SimulatedWorker::Stream final : public ServerCall {
 public:
  Stream(Connection& connection, Http2Session& session, int32_t id)
      : ServerCall(session, id), connection_(connection) {}

  // What its end is told to.
  bool hangs = false;
  std::optional<Liveness::Id> waits;
  TimePoint deadline = TimePoint::max();

 private:
  void OnRequest() override;
  void OnGone(StreamEnd) override;

  Connection& connection_;
};

// One connection to a client.
class SimulatedWorker::Connection final : public SessionEvents, public std::enable_shared_from_this<Connection> {
 public:
  Connection(SimulatedWorker& worker, Wire wire) : worker_(worker), wire_(std::move(wire)) {}

  absl::Status Begin() {
    auto session = Http2Session::Create({.side = Http2Session::Side::kServer,
                                         .max_concurrent_streams = worker_.options_.max_concurrent_streams,
                                         .max_unsent_bytes_per_stream = 16u << 20},
                                        *this);
    if (!session.ok()) return session.status();
    session_ = *std::move(session);
    Flush();
    return absl::OkStatus();
  }

  void OnBytes(absl::string_view bytes) {
    if (session_ == nullptr) return;
    const absl::Status received = session_->Receive(bytes);
    Flush();
    if (!received.ok()) Lose();
  }
  void OnClientGone() {
    if (session_ == nullptr) return;
    session_->Lose();
    session_.reset();
    gone_.clear();
  }

  StreamEvents* OnStream(int32_t id) override {
    if (std::exchange(refuse_next_, false)) {
      worker_.faults_.Count(Fault::kRefused);
      return nullptr;
    }
    std::unique_ptr<Stream>& stream = streams_[id];
    stream = std::make_unique<Stream>(*this, *session_, id);
    if (streams_.size() == worker_.options_.max_concurrent_streams) worker_.faults_.Count(Fault::kOutOfStreams);
    return stream.get();
  }

  TimePoint Now() const { return worker_.events_.now(); }
  void EndAtDeadline(int32_t id, TimePoint deadline) {
    if (!worker_.options_.ends_at_deadline) return;
    worker_.events_.At(deadline, [id, weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self == nullptr || !self->streams_.contains(id)) return;
      self->session_->Reset(id, Http2Error::kCancel);
      self->Flush();
    });
  }

  void Serve(int32_t id, const std::string& request) {
    const std::vector<std::string> words = absl::StrSplit(request, ' ');
    uint64_t key = 0;
    size_t bytes = 0;
    size_t messages = 0;
    if (words.size() != 3 || !absl::SimpleAtoi(words[0], &key) || !absl::SimpleAtoi(words[1], &bytes) ||
        !absl::SimpleAtoi(words[2], &messages)) {
      return Finish(id, absl::InvalidArgumentError("not a request"));
    }
    if (worker_.options_.hung) {
      worker_.faults_.Count(Fault::kHungWorker);
      return Hang(id);
    }
    const std::optional<Fault> fault = worker_.DrawFault();
    auto think = TimePoint::duration(
        static_cast<int64_t>(worker_.dice_.Fraction() * static_cast<double>(worker_.options_.longest_think.count())));
    if (fault == Fault::kHang || fault == Fault::kSlow) Hang(id);
    if (fault == Fault::kHang) return;
    if (fault == Fault::kSlow) think += std::chrono::milliseconds(worker_.dice_.Between(50, 2000));
    if (fault == Fault::kEarlyHeaders) session_->SendHeaders(id, ToHeaders(ResponseHead{}), false);
    const auto self = shared_from_this();
    worker_.events_.After(think, [=] {
      if (self->session_ == nullptr) return;
      self->Answer(id, key, bytes, messages, fault);
      self->Flush();
    });
    // What a server sends early leaves with what it handles now.
  }

  void Gone(int32_t id) {
    auto stream = streams_.extract(id);
    if (stream.mapped()->hangs) worker_.liveness_.HangEnds();
    if (stream.mapped()->waits.has_value()) worker_.liveness_.Left(*stream.mapped()->waits);
    gone_.push_back(std::move(stream.mapped()));
  }

 private:
  // The client hears nothing of it for long.
  void Hang(int32_t id) {
    const auto found = streams_.find(id);
    if (found == streams_.end() || std::exchange(found->second->hangs, true)) return;
    worker_.liveness_.HangBegins();
  }
  void AnswerWaits(int32_t id) {
    const auto found = streams_.find(id);
    if (found != streams_.end()) found->second->waits = worker_.liveness_.Ready(found->second->deadline);
  }

  void Answer(int32_t id, uint64_t key, size_t bytes, size_t messages, std::optional<Fault> fault) {
    if (fault == Fault::kError) return Finish(id, absl::UnavailableError("simulated"));
    if (fault == Fault::kReset) return session_->Reset(id, Http2Error::kInternalError);
    if (fault == Fault::kLost) return Lose();
    if (fault == Fault::kRefused) refuse_next_ = true;
    if (fault == Fault::kGoAway) session_->GoAway(Http2Error::kNoError);
    if (fault == Fault::kGarbage) {
      wire_.to_client->Write("this is not HTTP/2, and nobody said it was");
      return;
    }
    if (fault != Fault::kEarlyHeaders) session_->SendHeaders(id, ToHeaders(ResponseHead{}), false);
    for (size_t i = 0; i < messages; ++i) {
      std::string message = FrameMessage(AnswerOf(key + i, bytes));
      const bool last = i + 1 == messages;
      if (last && fault == Fault::kCorrupt && bytes > 0) {
        message[MessageReader::kPrefixBytes + worker_.dice_.Below(bytes)] ^= 1;
      }
      if (last && (fault == Fault::kShort || fault == Fault::kHangInAnswer || fault == Fault::kErrorLate)) {
        // At least a byte: a stream without its last message would be a whole one.
        message.resize(1 + worker_.dice_.Below(message.size() - 1));
      }
      if (last && fault == Fault::kExtraMessage) message += FrameMessage("one more");
      (void)session_->SendData(id, std::move(message), false);
    }
    if (fault == Fault::kHangInAnswer) return Hang(id);
    AnswerWaits(id);
    session_->SendHeaders(
        id, ToTrailers(fault == Fault::kErrorLate ? absl::InternalError("simulated") : absl::OkStatus(), "", {}), true);
  }

  void Finish(int32_t id, const absl::Status& status) {
    session_->SendHeaders(id, ToTrailersOnly(status, "", {}), true);
  }

  void Lose() {
    if (session_ == nullptr) return;
    Flush();
    wire_.to_worker->Cut();
    wire_.to_client->End(absl::UnavailableError("connection reset by peer"));
    OnClientGone();
  }

  void Flush() {
    if (session_ == nullptr) return;
    std::string out;
    session_->Output(out);
    if (!out.empty()) wire_.to_client->Write(std::move(out));
    gone_.clear();
  }

  SimulatedWorker& worker_;
  const Wire wire_;
  std::unique_ptr<Http2Session> session_;
  std::map<int32_t, std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Stream>> gone_;  // destroyed once nothing of them is on the stack
  bool refuse_next_ = false;
};

void SimulatedWorker::Stream::OnRequest() {
  if (head().timeout != absl::InfiniteDuration()) {
    deadline = connection_.Now() + absl::ToChronoNanoseconds(head().timeout);
    connection_.EndAtDeadline(stream(), deadline);
  }
  connection_.Serve(stream(), request());
}

void SimulatedWorker::Stream::OnGone(StreamEnd) {
  connection_.Gone(stream());
}

SimulatedWorker::SimulatedWorker(EventQueue& events, SimulatedPort& port, Dice& dice, FaultCounts& faults,
                                 Liveness& liveness, const Options& options)
    : events_(events), port_(port), dice_(dice), faults_(faults), liveness_(liveness), options_(options) {}

SimulatedWorker::~SimulatedWorker() = default;

SimulatedWorker::Wire SimulatedWorker::Accept(std::function<void(absl::string_view)> on_bytes,
                                              std::function<void(absl::Status)> on_end) {
  Wire wire;
  wire.to_client =
      std::make_shared<SimulatedPipe>(events_, &port_, options_.delay, std::move(on_bytes), std::move(on_end));
  // The connection is known after its pipes.
  const auto connection = std::make_shared<std::weak_ptr<Connection>>();
  wire.to_worker = std::make_shared<SimulatedPipe>(
      events_, nullptr, options_.delay,
      [connection](absl::string_view bytes) {
        if (const auto known = connection->lock()) known->OnBytes(bytes);
      },
      [connection](const absl::Status&) {
        if (const auto known = connection->lock()) known->OnClientGone();
      });
  connections_.push_back(std::make_shared<Connection>(*this, wire));
  *connection = connections_.back();
  if (!connections_.back()->Begin().ok()) connections_.pop_back();
  return wire;
}

std::optional<Fault> SimulatedWorker::DrawFault() {
  if (!faulty_ || options_.fault_one_in == 0 || !dice_.OneIn(options_.fault_one_in)) return std::nullopt;
  const auto fault = static_cast<Fault>(dice_.Below(kRequestFaults));
  // That one is hit by the next request.
  if (fault != Fault::kRefused) faults_.Count(fault);
  return fault;
}

}  // namespace sluice::testing

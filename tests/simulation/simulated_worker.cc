#include "tests/simulation/simulated_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/grpc_wire/message_reader.h"
#include "lib/grpc_wire/request.h"
#include "lib/grpc_wire/response_head.h"
#include "tests/grpc_wire/server_call.h"

namespace sluice::testing {

std::string AnswerOf(uint64_t key, size_t bytes) {
  std::string answer(bytes, '\0');
  uint64_t state = key * 0x9e3779b97f4a7c15 + bytes;
  for (char& byte : answer) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<char>(state >> 56);
  }
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
    streams_.clear();
  }

  StreamEvents* OnStream(int32_t id) override {
    if (refuse_next_) {
      refuse_next_ = false;
      return nullptr;
    }
    streams_.push_back(std::make_unique<Stream>(*this, *session_, id));
    return streams_.back().get();
  }

  void Serve(int32_t id, const std::string& request) {
    ++worker_.requests_;
    const std::vector<std::string> words = absl::StrSplit(request, ' ');
    uint64_t key = 0;
    size_t bytes = 0;
    size_t messages = 0;
    if (words.size() != 3 || !absl::SimpleAtoi(words[0], &key) || !absl::SimpleAtoi(words[1], &bytes) ||
        !absl::SimpleAtoi(words[2], &messages)) {
      return Finish(id, absl::InvalidArgumentError("not a request"));
    }
    if (worker_.hung_) return;
    const std::optional<Fault> fault = worker_.DrawFault();
    auto think = TimePoint::duration(
        static_cast<int64_t>(worker_.dice_.Fraction() * static_cast<double>(worker_.options_.longest_think.count())));
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

  void Gone(Stream& stream) {
    gone_.splice(gone_.end(), streams_, std::find_if(streams_.begin(), streams_.end(), [&stream](const auto& known) {
                   return known.get() == &stream;
                 }));
  }

  SimulatedWorker& worker() { return worker_; }

 private:
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
        message.resize(worker_.dice_.Below(message.size()));
      }
      if (last && fault == Fault::kExtraMessage) message += FrameMessage("one more");
      (void)session_->SendData(id, std::move(message), false);
    }
    if (fault == Fault::kHangInAnswer) return;
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
  std::list<std::unique_ptr<Stream>> streams_;
  std::list<std::unique_ptr<Stream>> gone_;  // destroyed once nothing of them is on the stack
  bool refuse_next_ = false;
};

void SimulatedWorker::Stream::OnRequest() {
  connection_.Serve(stream(), request());
}

void SimulatedWorker::Stream::OnGone(StreamEnd) {
  connection_.Gone(*this);
}

SimulatedWorker::SimulatedWorker(EventQueue& events, SimulatedPort& port, Dice& dice, FaultCounts& faults,
                                 const Options& options)
    : events_(events), port_(port), dice_(dice), faults_(faults), options_(options) {}

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
  const auto fault = static_cast<Fault>(dice_.Below(kFaults));
  // These are drawn where connections are made.
  if (fault == Fault::kConnectRefused || fault == Fault::kConnectHangs) return std::nullopt;
  faults_.Count(fault);
  return fault;
}

}  // namespace sluice::testing

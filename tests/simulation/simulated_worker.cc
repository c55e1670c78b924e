#include "tests/simulation/simulated_worker.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "lib/grpc_wire/message_reader.h"
#include "lib/grpc_wire/request.h"
#include "lib/grpc_wire/response_head.h"
#include "tests/simulation/worker_session.h"

namespace sluice::testing {
namespace {

// Size of certificates and keys. The schedule allows 6 KB.
constexpr int64_t kMaxHandshakeBytes = 5500;

}  // namespace

// Fills eight bytes at a time, by splitmix64.
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

// One connection to a client.
class SimulatedWorker::Connection final : public WorkerSession, public std::enable_shared_from_this<Connection> {
 public:
  Connection(SimulatedWorker& worker, Wire wire) : worker_(worker), wire_(std::move(wire)) {}

 private:
  // The state that is needed when the call ends.
  struct Call {
    bool hangs = false;
    bool taken = true;
    bool streaming = false;
    std::optional<Liveness::Id> waits;
    TimePoint deadline = TimePoint::max();
  };

  StreamEvents* OnStream(int32_t id) override {
    if (std::exchange(refuse_next_, false)) {
      worker_.faults_.Count(Fault::kRefused);
      return nullptr;
    }
    StreamEvents* const stream = WorkerSession::OnStream(id);
    if (streams() == worker_.options_.max_concurrent_streams) worker_.faults_.Count(Fault::kOutOfStreams);
    return stream;
  }

  void Serve(int32_t id, const Question& question, absl::Duration timeout) override {
    Call& call = calls_[id];
    call.taken = question.taken;
    call.streaming = question.streaming;
    const auto other_kind = [&](const auto& other) { return other.second.streaming != question.streaming; };
    if (std::any_of(calls_.begin(), calls_.end(), other_kind)) worker_.faults_.Count(Fault::kMixedKinds);
    if (worker_.options_.slow) worker_.faults_.Count(Fault::kSlowSender);
    if (timeout != absl::InfiniteDuration()) {
      call.deadline = worker_.events_.now() + absl::ToChronoNanoseconds(timeout);
      EndAtDeadline(id, call.deadline);
    }
    if (worker_.options_.hung) {
      worker_.faults_.Count(Fault::kHungWorker);
      return Hang(id);
    }
    if (worker_.options_.fails) {
      worker_.faults_.Count(Fault::kErrorDetails);
      return session()->SendHeaders(id, ToTrailersOnly(absl::InternalError("fails"), "", worker_.LargeMetadata()),
                                    true);
    }
    if (worker_.faulty_ && worker_.options_.hang_one_in > 0 && worker_.dice_.OneIn(worker_.options_.hang_one_in)) {
      worker_.faults_.Count(Fault::kHang);
      return Hang(id);
    }
    const std::optional<Fault> fault = worker_.DrawFault();
    auto think = TimePoint::duration(
        static_cast<int64_t>(worker_.dice_.Fraction() * static_cast<double>(worker_.options_.longest_think.count())));
    if (fault == Fault::kHang || fault == Fault::kSlow) Hang(id);
    if (fault == Fault::kHang) return;
    worker_.liveness_.Thinks(think);
    if (fault == Fault::kSlow) think += std::chrono::milliseconds(worker_.dice_.Between(50, 2000));
    // Do not flush here: early headers leave with the output of the current event.
    if (fault == Fault::kEarlyHeaders) session()->SendHeaders(id, ToHeaders(ResponseHead{}), false);
    const auto self = shared_from_this();
    worker_.events_.After(think, [=] {
      self->worker_.process_.Run([=] {
        if (self->session() == nullptr) return;
        self->Answer(id, question, fault);
        self->Flush();
      });
    });
  }

  void OnGone(int32_t id) override {
    const auto call = calls_.extract(id);
    if (call.empty()) return;
    if (call.mapped().hangs) worker_.liveness_.HangEnds();
    if (!call.mapped().waits.has_value()) return;
    --worker_.waiting_;
    worker_.liveness_.Left(*call.mapped().waits);
  }

  void Write(std::string bytes) override { wire_.to_client->Write(std::move(bytes)); }

  void Lose() override {
    if (session() == nullptr) return;
    Flush();
    wire_.to_worker->Cut();
    wire_.to_client->End(absl::UnavailableError("connection reset by peer"));
    OnClientGone();
  }

  void EndAtDeadline(int32_t id, TimePoint deadline) {
    if (!worker_.options_.ends_at_deadline) return;
    worker_.events_.At(deadline, [id, &worker = worker_, weak = weak_from_this()] {
      worker.process_.Run([id, weak] {
        const auto self = weak.lock();
        if (self == nullptr || !self->HasStream(id)) return;
        self->session()->Reset(id, Http2Error::kCancel);
        self->Flush();
      });
    });
  }

  // Reports that the client receives nothing of the call for a long time.
  void Hang(int32_t id) {
    const auto found = calls_.find(id);
    if (found == calls_.end() || std::exchange(found->second.hangs, true)) return;
    worker_.liveness_.HangBegins();
  }
  void AnswerWaits(int32_t id, size_t bytes) {
    const auto found = calls_.find(id);
    if (found == calls_.end() || !found->second.taken) return;
    const Call& call = found->second;
    found->second.waits = worker_.liveness_.Ready(call.deadline, call.streaming, worker_.sender_, bytes);
    ++worker_.waiting_;
  }

  void Answer(int32_t id, const Question& question, std::optional<Fault> fault) {
    if (worker_.failing_) {
      worker_.faults_.Count(Fault::kErrorsInBulk);
      const absl::Status why = absl::InternalError("all fail");
      const Metadata metadata = worker_.DrawMetadata();
      const bool begun = fault == Fault::kEarlyHeaders;
      return session()->SendHeaders(id, begun ? ToTrailers(why, "", metadata) : ToTrailersOnly(why, "", metadata),
                                    true);
    }
    if (fault == Fault::kError) return Finish(id, absl::UnavailableError("simulated"));
    if (fault == Fault::kReset) return session()->Reset(id, Http2Error::kInternalError);
    if (fault == Fault::kLost) return Lose();
    if (fault == Fault::kRefused) refuse_next_ = true;
    if (fault == Fault::kGoAway) session()->GoAway(Http2Error::kNoError);
    if (fault == Fault::kGarbage) {
      wire_.to_client->WriteUnframed("this is not HTTP/2, and nobody said it was");
      return;
    }
    if (fault != Fault::kEarlyHeaders) {
      const Metadata metadata = worker_.DrawMetadata();
      session()->SendHeaders(id, ToHeaders(ResponseHead{.metadata = &metadata}), false);
    }
    if (fault == Fault::kMalformed) session()->SendHeaders(id, {{"x-more", "follows"}}, false);
    for (size_t i = 0; i < question.messages; ++i) {
      std::string message = FrameMessage(AnswerOf(question.key + i, question.bytes));
      const bool last = i + 1 == question.messages;
      if (last && fault == Fault::kCorrupt && question.bytes > 0) {
        message[MessageReader::kPrefixBytes + worker_.dice_.Below(question.bytes)] ^= 1;
      }
      if (last && (fault == Fault::kShort || fault == Fault::kHangInAnswer || fault == Fault::kErrorLate)) {
        // Keep at least one byte: a stream without its last message would look complete.
        message.resize(1 + worker_.dice_.Below(message.size() - 1));
      }
      if (last && fault == Fault::kExtraMessage) message += FrameMessage("one more");
      (void)session()->SendData(id, std::move(message), false);
    }
    if (fault == Fault::kHangInAnswer) return Hang(id);
    AnswerWaits(id, question.messages * question.bytes);
    const absl::Status status = fault == Fault::kErrorLate ? absl::InternalError("simulated") : absl::OkStatus();
    session()->SendHeaders(id, ToTrailers(status, "", worker_.DrawMetadata()), true);
  }

  SimulatedWorker& worker_;
  const Wire wire_;
  std::map<int32_t, Call> calls_;
  bool refuse_next_ = false;
};

SimulatedWorker::SimulatedWorker(EventQueue& events, SimulatedPort& port, Dice& dice, FaultCounts& faults,
                                 Liveness& liveness, size_t index, const Options& options)
    : events_(events),
      port_(port),
      dice_(dice),
      faults_(faults),
      liveness_(liveness),
      options_(options),
      uplink_(events),
      process_(events),
      sender_{index, process_, uplink_, options.slow} {}

SimulatedWorker::~SimulatedWorker() = default;

SimulatedWorker::Wire SimulatedWorker::Accept(SimulatedPipe::ChargedUntil charged_until,
                                              std::function<void(absl::string_view)> on_bytes,
                                              std::function<void(absl::Status)> on_end) {
  Wire wire;
  wire.to_client =
      std::make_shared<SimulatedPipe>(events_, SimulatedPipe::Way{uplink_, port_, std::move(charged_until)},
                                      options_.delay, std::move(on_bytes), std::move(on_end));
  // The pipes are made before the connection, so fill this in later.
  const auto connection = std::make_shared<std::weak_ptr<Connection>>();
  wire.to_worker = std::make_shared<SimulatedPipe>(
      events_, std::nullopt, options_.delay,
      [this, connection](absl::string_view bytes) {
        MayPause();
        process_.Run([connection, bytes = std::string(bytes)] {
          if (const auto known = connection->lock()) known->OnBytes(bytes);
        });
      },
      [this, connection](const absl::Status&) {
        process_.Run([connection] {
          if (const auto known = connection->lock()) known->OnClientGone();
        });
      });
  connections_.push_back(std::make_shared<Connection>(*this, wire));
  *connection = connections_.back();
  if (!connections_.back()->Begin(options_.max_concurrent_streams).ok()) connections_.pop_back();
  return wire;
}

void SimulatedWorker::Handshake(TimePoint charged_until, std::function<void()> on_done) {
  process_.Run([this, charged_until, on_done = std::move(on_done)] {
    const auto bytes = static_cast<size_t>(dice_.Between(1500, kMaxHandshakeBytes));
    const auto missing = std::make_shared<size_t>(bytes);
    const auto pipe = std::make_shared<SimulatedPipe>(
        events_,
        SimulatedPipe::Way{uplink_, port_, [charged_until](const std::vector<uint32_t>&) { return charged_until; }},
        options_.delay,
        [missing, on_done](absl::string_view part) {
          *missing -= part.size();
          if (*missing == 0) on_done();
        },
        [](const absl::Status&) {});
    pipe->WriteUnframed(std::string(bytes, 'c'));
  });
}

// May stop the process before it sees a grant.
void SimulatedWorker::MayPause() {
  if (!faulty_ || options_.pause_one_in == 0 || waiting_ == 0 || process_.stopped()) return;
  if (!dice_.OneIn(options_.pause_one_in)) return;
  faults_.Count(Fault::kPaused);
  liveness_.HangBegins();
  // Draw the logarithm, so that short and long pauses are equally frequent.
  const auto pause = std::chrono::milliseconds(5) * std::pow(400, dice_.Fraction());
  process_.Stop(std::chrono::duration_cast<TimePoint::duration>(pause), [this] { liveness_.HangEnds(); });
}

Metadata SimulatedWorker::DrawMetadata() {
  if (!options_.large_heads || dice_.OneIn(2)) return {};
  faults_.Count(Fault::kLargeHead);
  return LargeMetadata();
}

Metadata SimulatedWorker::LargeMetadata() {
  std::string value(static_cast<size_t>(dice_.Between(1 << 10, 16 << 10)), ' ');
  for (char& letter : value) letter = static_cast<char>('!' + dice_.Below(90));
  return {{"x-large", value}};
}

std::optional<Fault> SimulatedWorker::DrawFault() {
  if (!faulty_ || options_.fault_one_in == 0 || !dice_.OneIn(options_.fault_one_in)) return std::nullopt;
  const auto fault = static_cast<Fault>(dice_.Below(kRequestFaults));
  // kRefused is counted when it hits the next request.
  if (fault != Fault::kRefused) faults_.Count(fault);
  return fault;
}

}  // namespace sluice::testing

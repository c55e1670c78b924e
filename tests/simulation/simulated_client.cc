#include "tests/simulation/simulated_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/numbers.h"
#include "lib/grpc_wire/message_reader.h"
#include "lib/grpc_wire/request.h"
#include "tests/simulation/simulated_worker.h"

namespace sluice::testing {

// One call of the application.
class SimulatedClient::Call final : public StreamEvents {
 public:
  Call(SimulatedClient& client, const Question& question, OnOutcome on_outcome)
      : client_(client), question_(question), on_outcome_(std::move(on_outcome)) {}

  void set_stream(int32_t stream) { stream_ = stream; }

 private:
  void OnHeaders(HeaderList headers, bool) override {
    for (const auto& field : headers) {
      int code = 0;
      if (field.name == "grpc-status" && absl::SimpleAtoi(field.value, &code)) {
        outcome_.code = static_cast<absl::StatusCode>(code);
      }
    }
  }
  void OnData(absl::string_view bytes, size_t window_bytes, bool) override {
    answer_.append(bytes.data(), bytes.size());
    if (client_.habit_ == Habit::kReads) client_.session_->Grant(stream_, static_cast<uint32_t>(window_bytes));
  }
  void OnClosed(StreamEnd end) override {
    std::string right;
    for (size_t i = 0; i < question_.messages; ++i) {
      right += FrameMessage(AnswerOf(question_.key + i, question_.bytes));
    }
    outcome_.right = answer_ == right;
    outcome_.bytes = answer_.size();
    if (end.kind != StreamEnd::Kind::kComplete) outcome_.code.reset();
    auto self = client_.calls_.extract(stream_);
    if (!self.empty()) client_.gone_.insert(std::move(self));
    std::exchange(on_outcome_, nullptr)(outcome_);
  }

  SimulatedClient& client_;
  const Question question_;
  OnOutcome on_outcome_;
  int32_t stream_ = 0;
  std::string answer_;
  Outcome outcome_;
};

SimulatedClient::SimulatedClient(EventQueue& events, Dice& dice, SimulatedExecutor& executor, Habit habit)
    : events_(events),
      dice_(dice),
      habit_(habit),
      loopback_(std::make_shared<SimulatedLoopback>(
          events, executor,
          SimulatedLoopback::Client{.on_connected = [this] { Flush(); },
                                    .on_bytes = [this](const std::string& bytes) { OnBytes(bytes); },
                                    .on_closed = [this] { Lose(); }})) {
  loopback_->SetReading(habit != Habit::kReadsNothing);
}

SimulatedClient::~SimulatedClient() {
  loopback_->Close();
}

AcceptedSocket SimulatedClient::Connect() {
  session_ = *Http2Session::Create({.side = Http2Session::Side::kClient}, *this);
  return loopback_->Accept();
}

int32_t SimulatedClient::Ask(const Request& request, OnOutcome on_outcome) {
  if (over() || session_->open_slots() == 0) return 0;
  RequestHead head{.path = "/simulated.Answers/Get",
                   .authority = request.worker,
                   .timeout = absl::FromChrono(request.deadline - events_.now())};
  HeaderList headers = ToHeaders(head);
  headers.insert(headers.end(), request.metadata.begin(), request.metadata.end());
  std::string message = FrameMessage(RequestFor(request.question));
  auto call = std::make_unique<Call>(*this, request.question, std::move(on_outcome));
  const auto opened = request.in_two_parts ? session_->Open(headers, "", false, 0, *call)
                                           : session_->Open(headers, message, true, 0, *call);
  if (!opened.ok()) return 0;
  call->set_stream(*opened);
  calls_[*opened] = std::move(call);
  Flush();
  // Cancel the call at its deadline, as gRPC's clients do.
  events_.At(request.deadline, [weak = weak_from_this(), stream = *opened] {
    const auto self = weak.lock();
    if (self != nullptr && self->habit_ != Habit::kReadsNothing) self->Cancel(stream);
  });
  if (request.in_two_parts) {
    events_.After(std::chrono::microseconds(dice_.Between(1, 3000)),
                  [weak = weak_from_this(), stream = *opened, message = std::move(message)] {
                    const auto self = weak.lock();
                    if (self == nullptr || self->over() || !self->calls_.contains(stream)) return;
                    (void)self->session_->SendData(stream, message, true);
                    self->Flush();
                  });
  }
  return *opened;
}

void SimulatedClient::Cancel(int32_t stream) {
  if (over() || !calls_.contains(stream)) return;
  session_->Reset(stream, Http2Error::kCancel);
  Flush();
}

void SimulatedClient::Die() {
  dead_ = true;
  Lose();
  loopback_->Close();
}

void SimulatedClient::OnBytes(const std::string& bytes) {
  if (over()) return;
  const absl::Status received = session_->Receive(bytes);
  Flush();
  if (!received.ok()) Die();
}

void SimulatedClient::Flush() {
  gone_.clear();
  if (over()) return;
  std::string out;
  session_->Output(out);
  gone_.clear();
  if (!out.empty()) loopback_->Write(out);
}

void SimulatedClient::Lose() {
  if (over()) return;
  session_->Lose();
  session_.reset();
  gone_.clear();
}

}  // namespace sluice::testing

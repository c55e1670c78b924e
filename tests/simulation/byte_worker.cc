#include "tests/simulation/byte_worker.h"

#include <deque>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/simulation/simulated_worker.h"

namespace sluice::testing {
namespace {

// A tunnel may hold its window for as long.
constexpr std::chrono::milliseconds kLongThinking(10);

std::optional<ByteRequest> ParseLine(absl::string_view line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  ByteRequest request;
  int64_t thinking_us = 0;
  int64_t pause_us = 0;
  int then = 0;
  if (words.size() != 6 || !absl::SimpleAtoi(words[0], &request.key) || !absl::SimpleAtoi(words[1], &request.bytes) ||
      !absl::SimpleAtoi(words[2], &thinking_us) || !absl::SimpleAtoi(words[3], &request.pause_after) ||
      !absl::SimpleAtoi(words[4], &pause_us) || !absl::SimpleAtoi(words[5], &then)) {
    return std::nullopt;
  }
  request.thinking = std::chrono::microseconds(thinking_us);
  request.pause = std::chrono::microseconds(pause_us);
  request.then = static_cast<ByteRequest::Then>(then);
  return request;
}

}  // namespace

std::string LineOf(const ByteRequest& request) {
  return absl::StrCat(request.key, " ", request.bytes, " ", request.thinking.count(), " ", request.pause_after, " ",
                      request.pause.count(), " ", static_cast<int>(request.then), "\n");
}

absl::StatusOr<std::vector<ByteRequest>> TakeRequests(std::string& received) {
  std::vector<ByteRequest> requests;
  for (size_t end = received.find('\n'); end != std::string::npos; end = received.find('\n')) {
    const std::optional<ByteRequest> request = ParseLine(received.substr(0, end));
    if (!request.has_value()) return absl::InvalidArgumentError(received.substr(0, end));
    received.erase(0, end + 1);
    requests.push_back(*request);
  }
  return requests;
}

// One connection of a client. The events of its pipes and of the queue keep it.
class ByteWorker::Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(EventQueue& events, Liveness& liveness, std::shared_ptr<ReceiveWindow> window)
      : events_(events), liveness_(liveness), window_(std::move(window)) {}

  void OnBytes(absl::string_view bytes) {
    received_.append(bytes.data(), bytes.size());
    const absl::StatusOr<std::vector<ByteRequest>> requests = TakeRequests(received_);
    if (!requests.ok()) return window_->Reset();
    requests_.insert(requests_.end(), requests->begin(), requests->end());
    Next();
  }
  void OnClientGone() {
    gone_ = true;
    window_->End(absl::OkStatus());
  }

 private:
  void Next() {
    if (gone_ || busy_ || requests_.empty()) return;
    busy_ = true;
    const ByteRequest request = requests_.front();
    requests_.pop_front();
    const bool hangs = request.thinking > kLongThinking;
    if (hangs) {
      liveness_.HangBegins();
    } else {
      liveness_.Thinks(request.thinking);
    }
    events_.After(request.thinking, [self = shared_from_this(), request, hangs] {
      if (hangs) self->liveness_.HangEnds();
      self->Answer(request);
    });
  }
  void Answer(const ByteRequest& request) {
    if (gone_) return;
    const std::string answer = AnswerOf(request.key, request.bytes);
    window_->Write(answer.substr(0, request.pause_after));
    events_.After(request.pause, [self = shared_from_this(), request, rest = answer.substr(request.pause_after)] {
      if (self->gone_) return;
      if (request.then == ByteRequest::Then::kStops) return;  // and stays busy
      if (request.then == ByteRequest::Then::kLosesConnection) return self->window_->Reset();
      self->window_->Write(rest);
      self->busy_ = false;
      self->Next();
    });
  }

  EventQueue& events_;
  Liveness& liveness_;
  const std::shared_ptr<ReceiveWindow> window_;
  std::string received_;  // the received part of the next request
  std::deque<ByteRequest> requests_;
  bool busy_ = false;
  bool gone_ = false;
};

ByteWorker::Wire ByteWorker::Accept(int64_t window_bytes, std::function<void(absl::string_view)> on_bytes,
                                    std::function<void(absl::Status)> on_end) {
  Wire wire;
  wire.to_client = std::make_shared<SimulatedPipe>(events_, SimulatedPipe::Way{uplink_, port_}, delay_,
                                                   std::move(on_bytes), std::move(on_end));
  wire.window = std::make_shared<ReceiveWindow>(events_, delay_, window_bytes, wire.to_client);
  const auto connection = std::make_shared<Connection>(events_, liveness_, wire.window);
  wire.to_worker = std::make_shared<SimulatedPipe>(
      events_, std::nullopt, delay_, [connection](absl::string_view bytes) { connection->OnBytes(bytes); },
      [connection](const absl::Status&) { connection->OnClientGone(); });
  return wire;
}

}  // namespace sluice::testing

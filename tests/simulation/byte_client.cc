#include "tests/simulation/byte_client.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/simulation/simulated_worker.h"

namespace sluice::testing {

ByteClient::ByteClient(EventQueue& events, SimulatedExecutor& executor, std::string worker)
    : worker_(std::move(worker)),
      loopback_(std::make_shared<SimulatedLoopback>(
          events, executor,
          SimulatedLoopback::Client{
              .on_connected = [this] { loopback_->Write(absl::StrCat("CONNECT ", worker_, " HTTP/1.1\r\n\r\n")); },
              .on_bytes = [this](const std::string& bytes) { OnBytes(bytes); },
              .on_closed =
                  [this] {
                    over_ = true;
                    End(/*complete=*/false);
                  }})) {}

ByteClient::~ByteClient() {
  loopback_->Close();
}

void ByteClient::Ask(const std::vector<ByteRequest>& requests, OnOutcome on_outcome) {
  on_outcome_ = std::move(on_outcome);
  std::string lines;
  for (const ByteRequest& request : requests) {
    lines += LineOf(request);
    expected_ += AnswerOf(request.key, request.bytes);
  }
  if (open_) return loopback_->Write(lines);
  unsent_ += lines;
}

void ByteClient::Die() {
  if (over_) return;
  over_ = true;
  loopback_->Close();
  End(/*complete=*/false);
}

void ByteClient::OnBytes(const std::string& bytes) {
  if (over_) return;
  std::string answer = bytes;
  if (!open_) {
    head_ += bytes;
    const size_t end = head_.find("\r\n\r\n");
    if (end == std::string::npos) return;
    if (!absl::StartsWith(head_, "HTTP/1.1 200")) return Die();
    open_ = true;
    answer = head_.substr(end + 4);
    loopback_->Write(std::exchange(unsent_, {}));
  }
  right_ = right_ && absl::StartsWith(expected_, answer);
  expected_.erase(0, answer.size());
  if (expected_.empty() && open_) End(/*complete=*/true);
}

void ByteClient::End(bool complete) {
  if (on_outcome_ != nullptr) std::exchange(on_outcome_, nullptr)({.complete = complete, .right = right_});
}

}  // namespace sluice::testing

#include "tests/simulation/byte_client.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/simulation/simulated_worker.h"

namespace sluice::testing {
namespace {

constexpr size_t kMostUnreadBytes = 256 << 10;  // as LinkStream

}  // namespace

void ByteClient::Ask(const std::vector<ByteRequest>& requests, OnOutcome on_outcome) {
  on_outcome_ = std::move(on_outcome);
  std::string lines;
  for (const ByteRequest& request : requests) {
    lines += LineOf(request);
    expected_ += AnswerOf(request.key, request.bytes);
  }
  Write(std::move(lines));
}

void ByteClient::Die() {
  if (over_) return;
  over_ = true;
  Close();
  End(/*complete=*/false);
}

void ByteClient::OnResponse(absl::string_view bytes) {
  right_ = right_ && absl::StartsWith(expected_, bytes);
  expected_.erase(0, bytes.size());
  if (expected_.empty()) End(/*complete=*/true);
}

void ByteClient::OnClosed() {
  over_ = true;
  End(/*complete=*/false);
}

void ByteClient::End(bool complete) {
  if (on_outcome_ != nullptr) std::exchange(on_outcome_, nullptr)({.complete = complete, .right = right_});
}

ProxiedByteClient::ProxiedByteClient(EventQueue& events, SimulatedExecutor& executor, std::string worker)
    : worker_(std::move(worker)),
      loopback_(std::make_shared<SimulatedLoopback>(
          events, executor,
          SimulatedLoopback::Client{
              .on_connected = [this] { loopback_->Write(absl::StrCat("CONNECT ", worker_, " HTTP/1.1\r\n\r\n")); },
              .on_bytes = [this](const std::string& bytes) { OnBytes(bytes); },
              .on_closed = [this] { OnClosed(); }})) {}

ProxiedByteClient::~ProxiedByteClient() {
  loopback_->Close();
}

void ProxiedByteClient::Write(std::string bytes) {
  if (open_) return loopback_->Write(bytes);
  unsent_ += bytes;
}

void ProxiedByteClient::OnBytes(const std::string& bytes) {
  if (over()) return;
  if (open_) return OnResponse(bytes);
  head_ += bytes;
  const size_t end = head_.find("\r\n\r\n");
  if (end == std::string::npos) return;
  if (!absl::StartsWith(head_, "HTTP/1.1 200")) return Die();
  open_ = true;
  loopback_->Write(std::exchange(unsent_, {}));
  OnResponse(head_.substr(end + 4));
}

StreamByteClient::StreamByteClient(SimulatedExecutor& executor, LinkLoop& loop, const std::string& worker)
    : executor_(executor),
      loop_(loop),
      connection_(std::make_shared<ScheduledConnection>(loop, /*traffic_class=*/0,
                                                        static_cast<ScheduledConnection::User&>(*this))) {
  executor_.Turn([this, &worker] { connection_->Connect(worker); });
}

void StreamByteClient::SetReading(bool reading) {
  reading_ = reading;
  if (!reading || connection_ == nullptr) return;
  executor_.Turn([this] {
    OnResponse(std::exchange(unread_, {}));
    connection_->Resume();
  });
}

void StreamByteClient::Write(std::string bytes) {
  unsent_ += bytes;
  executor_.Turn([this] { Flush(); });
}

void StreamByteClient::Close() {
  if (connection_ == nullptr) return;
  executor_.Turn([this] {
    connection_->Stop();
    loop_.AtEndOfTurn([over = std::move(connection_)] {});
  });
}

void StreamByteClient::OnOpen() {
  open_ = true;
  Flush();
}

bool StreamByteClient::OnBytes(absl::string_view bytes) {
  if (reading_) {
    OnResponse(bytes);
    return true;
  }
  unread_.append(bytes.data(), bytes.size());
  return unread_.size() <= kMostUnreadBytes;
}

void StreamByteClient::OnOver(const absl::Status& /*why*/, int /*error_number*/) {
  loop_.AtEndOfTurn([over = std::move(connection_)] {});
  OnClosed();
}

// The requests of the next exchange come after the response to these, so they have been written then.
void StreamByteClient::Flush() {
  if (!open_ || !written_ || unsent_.empty() || connection_ == nullptr) return;
  written_ = false;
  connection_->Write(std::exchange(unsent_, {}));
}

}  // namespace sluice::testing

#include "tests/unit/grpc_wire/server_call.h"

#include <utility>

#include "gtest/gtest.h"
#include "lib/grpc_wire/request.h"
#include "lib/grpc_wire/response_head.h"

namespace sluice::testing {

void ServerCall::OnHeaders(HeaderList headers, bool end_stream) {
  auto head = ParseRequestHead(std::move(headers));
  EXPECT_TRUE(head.ok()) << head.status();
  if (!head.ok()) return session_.SendHeaders(stream_, ToRefusal(head.status()), /*end_stream=*/true);
  head_ = *std::move(head);
  if (!head_.encoding.empty()) {
    const absl::Status known = messages_.SetEncoding(head_.encoding);
    EXPECT_TRUE(known.ok()) << known;
  }
  OnData("", 0, end_stream);
}

void ServerCall::OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) {
  const absl::Status read = messages_.Read(bytes);
  EXPECT_TRUE(read.ok()) << read;
  if (!end_stream) return session_.Grant(stream_, static_cast<uint32_t>(window_bytes));
  WireMessage message;
  EXPECT_TRUE(messages_.TakeMessage(message)) << "a request without its message";
  const absl::Status whole = Decompress(message, kLargestRequestBytes);
  EXPECT_TRUE(whole.ok()) << whole;
  request_ = std::move(message.bytes);
  OnRequest();
}

void ServerCall::OnClosed(StreamEnd end) {
  closed_ = true;
  OnGone(end);
}

void ServerCall::Answer(absl::string_view message) {
  SendHead();
  SendData(FrameMessage(message));
  SendTrailers();
}

void ServerCall::Fail(const absl::Status& status, absl::string_view details, const Metadata& metadata) {
  if (!closed_) session_.SendHeaders(stream_, ToTrailersOnly(status, details, metadata), /*end_stream=*/true);
}

void ServerCall::SendHead(const Metadata& metadata) {
  if (!closed_) session_.SendHeaders(stream_, ToHeaders(ResponseHead{.metadata = &metadata}), /*end_stream=*/false);
}

size_t ServerCall::SendData(std::string bytes) {
  if (closed_) return 0;
  const auto kept = session_.SendData(stream_, std::move(bytes), /*end_stream=*/false);
  EXPECT_TRUE(kept.ok()) << kept.status();
  return kept.value_or(0);
}

void ServerCall::SendDataAndEnd(std::string bytes) {
  if (closed_) return;
  const auto kept = session_.SendData(stream_, std::move(bytes), /*end_stream=*/true);
  EXPECT_TRUE(kept.ok()) << kept.status();
}

void ServerCall::SendTrailers(const absl::Status& status, absl::string_view details, const Metadata& metadata) {
  if (!closed_) session_.SendHeaders(stream_, ToTrailers(status, details, metadata), /*end_stream=*/true);
}

void ServerCall::Reset(Http2Error error) {
  if (!closed_) session_.Reset(stream_, error);
}

}  // namespace sluice::testing

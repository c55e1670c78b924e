#include "lib/grpc_wire/message_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/metadata_fields.h"

namespace sluice {

MessageReader::MessageReader(int64_t max_message_bytes, int64_t max_messages, MessageBuffers* buffers)
    : max_message_bytes_(std::max<int64_t>(0, max_message_bytes)), max_messages_(max_messages), buffers_(buffers) {}

absl::Status MessageReader::SetEncoding(absl::string_view encoding) {
  if (encoding != "gzip" && encoding != "identity" && !encoding.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("grpc-encoding \"", Snippet(encoding), "\" is not one of identity and gzip"));
  }
  gzip_ = encoding == "gzip";
  return absl::OkStatus();
}

absl::Status MessageReader::Read(absl::string_view bytes) {
  while (error_.ok() && !bytes.empty()) {
    error_ = ReadSome(bytes);
    if (!error_.ok()) body_ = std::string();
  }
  return error_;
}

absl::Status MessageReader::ReadSome(absl::string_view& bytes) {
  if (prefix_bytes_ < kPrefixBytes) {
    if (absl::Status status = ReadPrefix(bytes); !status.ok()) return status;
    if (prefix_bytes_ < kPrefixBytes) return absl::OkStatus();
  }
  ReadBody(bytes);
  if (body_.size() == body_size_) FinishMessage();
  return absl::OkStatus();
}

absl::Status MessageReader::ReadPrefix(absl::string_view& bytes) {
  if (messages_ == max_messages_) {
    return absl::UnimplementedError(absl::StrCat("more than ", max_messages_, " message came"));
  }
  const size_t taken = std::min(bytes.size(), kPrefixBytes - prefix_bytes_);
  std::copy_n(bytes.begin(), taken, prefix_.begin() + prefix_bytes_);
  prefix_bytes_ += taken;
  bytes.remove_prefix(taken);
  if (prefix_bytes_ < kPrefixBytes) return absl::OkStatus();

  const auto flag = static_cast<uint8_t>(prefix_[0]);
  if (flag > 1) return absl::InternalError(absl::StrCat("compressed flag of a message is ", flag, ", not 0 or 1"));
  compressed_ = flag == 1;
  if (compressed_ && !gzip_) {
    return absl::InternalError("compressed flag of a message is 1, but grpc-encoding names no compression");
  }
  uint32_t size = 0;
  for (size_t i = 1; i < kPrefixBytes; ++i) size = size << 8 | static_cast<uint8_t>(prefix_[i]);
  if (size > max_message_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("message of ", size, " bytes is larger than ", max_message_bytes_, " bytes"));
  }
  body_size_ = size;
  return absl::OkStatus();
}

void MessageReader::ReadBody(absl::string_view& bytes) {
  const size_t taken = std::min(bytes.size(), body_size_ - body_.size());
  const size_t size = body_.size() + taken;
  // A held response begins with a spare byte, which needs no memory yet.
  const bool has_memory = body_.capacity() > std::string().capacity();
  if (size > body_.capacity() && !has_memory && buffers_ != nullptr) body_ = buffers_->Take(body_size_) + body_;
  if (size > body_.capacity()) {
    // Reserve four times the received bytes. So the growth of a large message copies a third of its bytes in total. A
    // peer that claims a large size must send a quarter of the memory that it takes. A whole message gets exactly its
    // size. Rejected: 64 KiB at the prefix. A thousand responses that wait for their grants would take 64 MB.
    body_.reserve(std::min(body_size_, 4 * size));
  }
  body_.append(bytes.data(), taken);
  bytes.remove_prefix(taken);
}

void MessageReader::FinishMessage() {
  ready_.push_back({.bytes = std::move(body_), .gzip = compressed_});
  body_ = std::string();
  body_size_ = 0;
  prefix_bytes_ = 0;
  ++messages_;
}

int64_t MessageReader::pending_message_bytes() const {
  if (!error_.ok() || prefix_bytes_ < kPrefixBytes) return 0;
  return static_cast<int64_t>(body_size_ - body_.size());
}

bool MessageReader::TakeMessage(WireMessage& message) {
  if (ready_.empty()) return false;
  message = std::move(ready_.front());
  ready_.pop_front();
  return true;
}

bool MessageReader::in_message() const {
  return prefix_bytes_ > 0;
}

}  // namespace sluice

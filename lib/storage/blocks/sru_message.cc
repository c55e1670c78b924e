#include "lib/storage/blocks/sru_message.h"

#include <cstdint>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

namespace sluice {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr uint32_t TagOf(int field) {
  return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

// Returns the bytes of a length-delimited field in place.
bool ReadBytes(CodedInputStream& input, absl::string_view& bytes) {
  uint32_t length = 0;
  if (!input.ReadVarint32(&length)) return false;
  bytes = {};
  if (length == 0) return true;
  const void* begin = nullptr;
  int available = 0;
  if (!input.GetDirectBufferPointer(&begin, &available) || length > static_cast<uint32_t>(available)) return false;
  bytes = {static_cast<const char*>(begin), length};
  return input.Skip(static_cast<int>(length));
}

bool ReadMissing(CodedInputStream& input, v1::MissingSruRange& missing) {
  absl::string_view bytes;
  return ReadBytes(input, bytes) && missing.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

bool ParseSruMessage(absl::string_view message, SruMessage& parsed) {
  CodedInputStream input(reinterpret_cast<const uint8_t*>(message.data()), static_cast<int>(message.size()));
  while (const uint32_t tag = input.ReadTag()) {
    if (tag == TagOf(v1::ReadSruResponse::kDataFieldNumber)) {
      if (!ReadBytes(input, parsed.data)) return false;
    } else if (tag == TagOf(v1::ReadSruResponse::kMissingFieldNumber)) {
      if (!ReadMissing(input, parsed.missing.emplace_back())) return false;
    } else if (!WireFormatLite::SkipField(&input, tag)) {
      return false;
    }
  }
  return input.ConsumedEntireMessage();
}

}  // namespace sluice

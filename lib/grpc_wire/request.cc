#include "lib/grpc_wire/request.h"

#include <cassert>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/gzip.h"
#include "lib/grpc_wire/message_reader.h"
#include "lib/grpc_wire/metadata_fields.h"

namespace sluice {
namespace {

constexpr absl::string_view kUserAgent = "grpc-sluice/" SLUICE_VERSION;

std::string Frame(char compressed, absl::string_view message) {
  assert(message.size() <= std::numeric_limits<uint32_t>::max());
  std::string framed;
  framed.reserve(MessageReader::kPrefixBytes + message.size());
  framed.push_back(compressed);
  for (int shift = 24; shift >= 0; shift -= 8) framed.push_back(static_cast<char>(message.size() >> shift));
  framed.append(message.data(), message.size());
  return framed;
}

}  // namespace

HeaderList ToHeaders(const RequestHead& head) {
  constexpr size_t kFieldsOfProtocol = 10;
  HeaderList fields;
  fields.reserve(kFieldsOfProtocol + (head.metadata == nullptr ? 0 : head.metadata->size()) +
                 (head.more_metadata == nullptr ? 0 : head.more_metadata->size()));
  fields.push_back({":method", "POST"});
  fields.push_back({":scheme", head.tls ? "https" : "http"});
  fields.push_back({":path", head.path});
  fields.push_back({":authority", head.authority});
  if (head.timeout != absl::InfiniteDuration()) fields.push_back({"grpc-timeout", FormatTimeout(head.timeout)});
  fields.push_back({"te", "trailers"});
  fields.push_back({"content-type", "application/grpc"});
  if (head.gzip) fields.push_back({"grpc-encoding", "gzip"});
  fields.push_back({"user-agent", std::string(kUserAgent)});
  fields.push_back({"grpc-accept-encoding", "identity,gzip"});
  if (head.metadata != nullptr) AppendFields(*head.metadata, fields);
  if (head.more_metadata != nullptr) AppendFields(*head.more_metadata, fields);
  return fields;
}

std::string FrameMessage(absl::string_view message) {
  return Frame(0, message);
}

std::string FrameCompressed(absl::string_view message) {
  const std::optional<std::string> compressed = Gzip(message);
  return compressed.has_value() ? Frame(1, *compressed) : Frame(0, message);
}

}  // namespace sluice

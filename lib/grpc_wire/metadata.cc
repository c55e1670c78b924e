#include "lib/grpc_wire/metadata.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/metadata_fields.h"

namespace sluice {
namespace {

absl::Status ValidateKey(absl::string_view key) {
  if (key.empty()) return absl::InvalidArgumentError("metadata key is empty");
  if (!IsMetadataKey(key)) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata key \"", Snippet(key), "\" has other characters than a-z, 0-9, \"_\", \"-\" and \".\""));
  }
  if (absl::StartsWith(key, "grpc-") || IsProtocolField(key)) {
    return absl::InvalidArgumentError(absl::StrCat("metadata key \"", Snippet(key), "\" is reserved for the protocol"));
  }
  return absl::OkStatus();
}

absl::Status ValidateText(absl::string_view key, absl::string_view value) {
  if (!IsMetadataText(value)) {
    return absl::InvalidArgumentError(absl::StrCat("metadata \"", Snippet(key),
                                                   "\" has bytes that are not printable ASCII; only keys that end in "
                                                   "\"-bin\" carry them"));
  }
  if (absl::StartsWith(value, " ") || absl::EndsWith(value, " ")) {
    return absl::InvalidArgumentError(absl::StrCat("metadata \"", Snippet(key), "\" begins or ends with a space"));
  }
  return absl::OkStatus();
}

// Returns the size of the value on the wire: binary values are base64 without padding.
size_t WireBytes(absl::string_view key, absl::string_view value) {
  return IsBinaryKey(key) ? (value.size() * 4 + 2) / 3 : value.size();
}

}  // namespace

absl::Status ValidateMetadata(const Metadata& metadata) {
  constexpr size_t kFieldBytes = 32;
  size_t bytes = 0;
  for (const auto& [key, value] : metadata) {
    if (absl::Status status = ValidateKey(key); !status.ok()) return status;
    if (!IsBinaryKey(key)) {
      if (absl::Status status = ValidateText(key, value); !status.ok()) return status;
    }
    bytes += key.size() + WireBytes(key, value) + kFieldBytes;
  }
  if (bytes > kMaxMetadataBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata takes ", bytes, " bytes as a header list; at most ", kMaxMetadataBytes, " are allowed"));
  }
  return absl::OkStatus();
}

}  // namespace sluice

#include "lib/grpc_wire/wire_message.h"

#include <utility>

#include "absl/status/statusor.h"
#include "lib/grpc_wire/gzip.h"

namespace sluice {

absl::Status Decompress(WireMessage& message, int64_t max_bytes) {
  if (!message.gzip) return absl::OkStatus();
  absl::StatusOr<std::string> bytes = Gunzip(message.bytes, max_bytes);
  if (!bytes.ok()) return bytes.status();
  message = {.bytes = *std::move(bytes)};
  return absl::OkStatus();
}

}  // namespace sluice

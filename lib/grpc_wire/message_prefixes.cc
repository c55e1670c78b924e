#include "lib/grpc_wire/message_prefixes.h"

#include <algorithm>

namespace sluice {

MessagePrefixes::Part MessagePrefixes::Read(absl::string_view bytes) {
  Part part;
  while (!bytes.empty()) {
    if (in_prefix_bytes_ < kPrefixBytes) {
      // The prefix is the compression flag, then the length in network order.
      const auto byte = static_cast<uint8_t>(bytes.front());
      pending_bytes_ = in_prefix_bytes_ == 0 ? 0 : pending_bytes_ << 8 | byte;
      bytes.remove_prefix(1);
      ++part.prefix_bytes;
      if (++in_prefix_bytes_ < kPrefixBytes) continue;
      part.whole_prefix = true;
      ++messages_;
    }
    const int64_t taken = std::min(static_cast<int64_t>(bytes.size()), pending_bytes_);
    bytes.remove_prefix(static_cast<size_t>(taken));
    pending_bytes_ -= taken;
    part.message_bytes += taken;
    if (pending_bytes_ == 0) in_prefix_bytes_ = 0;
  }
  return part;
}

}  // namespace sluice

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "sluice/link.h"

#include "absl/status/status.h"

namespace sluice {

// How this process takes part in a link that several processes of a host share: it leases its budget from the daemon
// sluice-link. See docs/guides/share-a-link.md.
struct SharedLinkOptions {
  std::string socket;       // path of the daemon's Unix socket
  std::string application;  // name in the daemon's metrics: 1 to 64 characters of [A-Za-z0-9._-]
  double weight = 1;        // 0.001 to 1000; while all processes need more, shares are proportional to it
  // Bytes that may be in flight before the first daemon appears; at least 1. Default: an eighth of the budget.
  std::optional<int64_t> start_bytes;
  // User of the daemon; a daemon of another user is not believed. Default: root, the user of this process, or the owner
  // of the socket's folder.
  std::optional<uint32_t> daemon_uid;
  // Called after each change, on the link's thread; for logs. OK means that a lease is in force. Otherwise the status
  // has the reason, and the link uses its safe share. May be null.
  std::function<void(const absl::Status&)> on_state;
};

// Makes Link::Options::share. Link::Create returns InvalidArgument if a field is out of its bounds.
std::shared_ptr<const BudgetLessor> ShareLink(SharedLinkOptions options);

}  // namespace sluice

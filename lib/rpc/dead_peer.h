#pragma once

#include "absl/time/time.h"

namespace sluice {

// A peer that goes without a word (a machine that loses power, a network that is cut) is taken for gone after so long.
inline constexpr absl::Duration kDeadPeerAfter = absl::Seconds(10);

// Sees to it for a TCP socket that is not connected yet. TCP by itself gives up after a quarter of an hour where
// something was sent, and never where not. False: the kernel refuses it.
bool NoticeDeadPeer(int fd);

}  // namespace sluice

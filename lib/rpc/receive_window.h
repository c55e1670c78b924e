#pragma once

#include <cstdint>

#include <grpcpp/support/channel_arguments.h>

#include "sluice/link_profile.h"

namespace sluice {

// A bound on what the workers may have on the way to one of our connections. A grant lets a whole answer come, and a
// large one would overflow the port's buffer by itself as fast as its worker's congestion window opens. TCP sends no
// more than its receiver's window, whatever the worker runs. See docs/scheduling.md, "Large answers".
struct ReceiveWindow {
  int64_t bytes = 0;                 // payload of one connection in the network at once, at most
  int64_t packet_payload_bytes = 0;  // of one packet at most; larger ones would not fit a small window a few times

  friend bool operator==(const ReceiveWindow&, const ReceiveWindow&) = default;
};

// The smallest window, and the largest that Linux gives without privileges (net.core.rmem_max, doubled).
inline constexpr int64_t kMinReceiveWindowBytes = 8 * 1024;
inline constexpr int64_t kMaxReceiveWindowBytes = 2 * 212'992;

// False where the gRPC that this was compiled with has no known way to reach the sockets.
bool CanBoundReceiveWindow();

// Two thirds of the budget, in whole packets; the last third is what grants keep for headers. 0, for none, where that
// is so little that TCP would wait for its delayed acknowledgements, or more than kMaxReceiveWindowBytes.
int64_t DefaultReceiveWindowBytes(const LinkProfile& profile, int64_t budget_bytes);

// Of a socket that is not connected yet. False: the kernel refuses it.
bool BoundReceiveWindow(const ReceiveWindow& window, int fd);

// For the TCP connections of all channels that are made with `arguments`. Nothing where it cannot be bounded.
void BoundReceiveWindow(const ReceiveWindow& window, grpc::ChannelArguments& arguments);

}  // namespace sluice

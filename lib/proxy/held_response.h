#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "lib/proxy/held_bytes.h"

namespace sluice {

// The part of one response that the proxy holds for its client, or has requested from the worker. There is one for each
// proxied call. Used on the link's thread only.
class HeldResponse {
 public:
  // `held` counts the responses of all clients, and `group` is the group of this one; see HeldBytes for `release`. At
  // most `max_bytes` are held of this one.
  HeldResponse(HeldBytes& held, size_t group, int64_t max_bytes, std::function<void()> release)
      : held_(held), group_(group), max_bytes_(max_bytes), holder_(std::move(release), group) {}

  // Bytes that the client has not read.
  void CountUnsent(int64_t bytes, TimePoint now);
  // Bytes that were requested, and have not arrived.
  void CountAsked(int64_t bytes);

  // Bytes that may be requested while `unsent_bytes` wait for the client.
  int64_t WantedBytes(int64_t unsent_bytes) const;
  // Whether bytes that have arrived may wait for the rest of their message, so that `unsent_bytes` wait then.
  bool MayWaitForMore(int64_t unsent_bytes) const;
  // Since when the client has read nothing although bytes wait for it. TimePoint::max(): no bytes wait, or it reads.
  TimePoint stuck_since() const { return stuck_since_; }

 private:
  int64_t RoomBytes() const;

  HeldBytes& held_;
  const size_t group_;
  const int64_t max_bytes_;
  HeldBytes::Holder holder_;
  int64_t asked_bytes_ = 0;
  TimePoint stuck_since_ = TimePoint::max();
};

}  // namespace sluice

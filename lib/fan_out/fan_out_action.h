#pragma once

#include <cstddef>
#include <vector>

namespace sluice {

// A decision of FanOutLogic, for the owner of the calls to carry out.
struct FanOutAction {
  enum class Kind {
    kSend,    // Send the request of the attempt's ask to its worker. OnSent follows if it is sent, and then OnEnded.
              // Attempts are numbered from 0 in the order of these actions.
    kAccept,  // Hand over the first `messages` messages of the attempt that were neither accepted nor dropped.
              // OnAccepted with the verdict follows for each.
    kDrop,    // Discard the first `messages` of them.
    kCancel,  // Cancel the attempt; OnEnded still follows.
    kEnd,     // The fan-out is over, and result() is valid. Comes once, after the last OnEnded and OnAccepted.
  };
  Kind kind;
  size_t attempt = 0;
  size_t messages = 0;
  friend bool operator==(const FanOutAction&, const FanOutAction&) = default;
};
using FanOutActions = std::vector<FanOutAction>;

}  // namespace sluice

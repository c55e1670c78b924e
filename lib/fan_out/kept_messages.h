#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "lib/grpc_wire/wire_message.h"
#include "lib/link/callback_memory.h"

namespace sluice {

// The messages of one attempt, from their arrival until they are dropped or settled. FanOutLogic decides when they are
// accepted or dropped. An accepted message belongs to the sink; its size stays here until its verdict. There is one for
// each attempt of a FanOutRun. Used on the link's thread only.
class KeptMessages {
 public:
  // Counts the messages in `memory` until they are dropped or settled. Null: their bytes are not bounded.
  void CountIn(CallbackMemory::Account* memory);

  void Add(WireMessage message);
  // Accept, Drop and Settle concern the oldest messages.
  std::vector<WireMessage> Accept(size_t messages);
  void Drop(size_t messages);
  int64_t Settle();  // an accepted message has its verdict; returns its bytes on the wire

 private:
  void Release(int64_t bytes);

  CallbackMemory::Account* memory_ = nullptr;
  std::deque<WireMessage> kept_;
  std::deque<int64_t> accepted_bytes_;  // sizes of the messages that wait for their verdict
};

}  // namespace sluice

#include "lib/scheduling/queued_worker.h"

#include "lib/scheduling/block_queue.h"

namespace sluice {

NewTurnKey::type NewTurnKey::operator()(const Call& call) const {
  return {call.block->id, call.place};
}

}  // namespace sluice

#include "lib/net/opening_pool.h"

namespace sluice {

void OpeningPool::Place::Leave() {
  if (listener_ == nullptr) return;
  unlink();
  --std::exchange(listener_, nullptr)->count;
}

size_t OpeningPool::Add(const std::string& listener, Place& place) {
  Listener& pool = listeners_[listener];
  size_t ended = 0;
  while (pool.count >= limit_ && EndOldest(pool)) ++ended;
  place.Leave();
  place.listener_ = &pool;
  pool.places.push_back(place);
  ++pool.count;
  return ended;
}

bool OpeningPool::EndOldest(Listener& pool) {
  if (pool.count == 0) return false;
  Place& oldest = pool.places.front();
  oldest.Leave();
  oldest.end_();
  return true;
}

}  // namespace sluice

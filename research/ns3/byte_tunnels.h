#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/link/link_loop.h"

namespace sluice::testing {

// The byte tunnels of an aggregator, one to each worker, instead of calls: the connections of LinkStream, with their
// turns in the schedule. A tunnel has one request under way, as HTTP/1.1 does. One for each aggregator. Used on the
// link's thread only.
class ByteTunnels {
 public:
  // `loop` must outlive it. It is destroyed after Stop, outside of all turns.
  explicit ByteTunnels(LinkLoop& loop);
  ~ByteTunnels();
  ByteTunnels(const ByteTunnels&) = delete;
  ByteTunnels& operator=(const ByteTunnels&) = delete;

  // Calls `on_open` when the tunnels to all workers are open.
  void Connect(const std::vector<std::string>& workers, std::function<void()> on_open);
  // Calls `on_response` when all bytes of the response have come.
  void Ask(size_t worker, size_t bytes, std::function<void()> on_response);
  void Stop();

 private:
  class Tunnel;

  LinkLoop& loop_;
  std::function<void()> on_open_;
  size_t connecting_ = 0;
  std::vector<std::unique_ptr<Tunnel>> tunnels_;
};

}  // namespace sluice::testing

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sluice/fan_out.h"
#include "sluice/link.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "group_load.pb.h"
#include "tests/testbed/block_callers.h"

namespace sluice::testbed {

// The time of a part of a run: the warm-up, or the measured part.
struct Window {
  using Clock = BlockRecord::Clock;

  Clock::time_point start;
  Clock::time_point end;
  // Whether the end cuts off fan-outs that are under way. Otherwise each fan-out that has begun ends by itself.
  bool cut = false;
};

double SecondsBetween(Window::Clock::time_point from, Window::Clock::time_point to);

// The FanOuts that groups share. There is one for each load. Not thread-safe.
class SharedFanOuts {
 public:
  // Call this for each group first. InvalidArgument: the workers of the group and of an earlier one differ.
  absl::Status Add(const v1::LoadGroup& group);

  // Returns the FanOut of the group, for which `options` must have the workers of the group. Creates it unless another
  // group has.
  absl::StatusOr<std::shared_ptr<FanOut>> Get(const v1::LoadGroup& group, std::shared_ptr<Link> link,
                                              FanOut::Options options);

 private:
  struct Shared {
    std::vector<std::string> workers;
    std::shared_ptr<FanOut> fan_out;
  };

  std::map<std::string, Shared> shared_;
};

// The fan-outs of one group of the config. There is one for each group. Not thread-safe.
class LoadGroup {
 public:
  explicit LoadGroup(const v1::LoadGroup& config) : config_(config) {}

  const v1::LoadGroup& config() const { return config_; }

  // Must be called first. Begins to connect to the workers. Without a link, calls go through gRPC's own
  // client, which connects later.
  absl::Status Start(std::shared_ptr<Link> link, const std::string& ca, SharedFanOuts& shared);

  // Waits until all workers are connected.
  absl::Status AwaitConnections();

  // Begins fan-outs until the window ends, and returns when the last one has ended.
  v1::GroupReport Run(const Window& window);

 private:
  std::unique_ptr<BlockCaller> MakeCaller(const Window& window);
  void Read(BlockCaller& caller, const Window& window, uint32_t reader, v1::GroupReport& report) const;
  Window::Clock::time_point FirstDue(const Window& window, uint32_t reader) const;
  absl::Duration TimeFor(const Window& window) const;

  const v1::LoadGroup config_;
  std::shared_ptr<FanOut> fan_out_;                    // null with the stock client
  std::vector<std::unique_ptr<BlockCaller>> tunnels_;  // of each reader; they keep their connections
  Stubs stubs_;
  CallCap no_cap_{SIZE_MAX};
};

}  // namespace sluice::testbed

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "lib/link/worker.h"
#include "lib/proxy/target.h"

namespace sluice {

// The way of one proxied call to its worker: its target, and the workers of the target that it has tried. There is one
// for each proxied call. Used on the link's thread only.
class CallRoute {
 public:
  void SetTarget(std::shared_ptr<Target> target) { target_ = std::move(target); }
  Target* target() const { return target_.get(); }  // null: not known

  // The next worker. Errors as Target::Pick.
  absl::StatusOr<std::shared_ptr<Worker>> Next();
  // The last worker could not be reached. Returns whether another worker of the target may be; Next then returns it.
  bool FindOther();
  // The pattern of the policy that matches the last worker; empty: there was none.
  const std::string& pattern() const { return pattern_; }

 private:
  std::shared_ptr<Target> target_;
  std::optional<Target::Choice> other_;
  std::string pattern_;
  size_t unreached_ = 0;  // workers that could not be reached
};

}  // namespace sluice

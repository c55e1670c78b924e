#pragma once

#include <cstdint>

#include "sluice/link.h"

#include "gtest/gtest.h"
#include "lib/link/link_core.h"

namespace sluice::testing {

// Takes bytes of a link's budget, as an answer that was granted and does not come, until Release. The link needs a
// stall_timeout that is longer than the test. Not thread-safe.
class HeldBudget final : private Scheduled {
 public:
  // There is room for them.
  HeldBudget(Link& link, int64_t bytes) : link_(link) {
    link_.Await([&](LinkCore& core) {
      BlockId block = 0;
      const absl::Status submitted =
          core.SubmitOther(*this, bytes, core.now() + std::chrono::hours(1), LinkCore::Place::kAhead, block);
      EXPECT_TRUE(submitted.ok()) << submitted;
    });
    EXPECT_TRUE(held_);
  }
  ~HeldBudget() override { Release(); }

  void Release() {
    link_.Await([this](LinkCore& core) {
      if (std::exchange(held_, false)) core.Finish(id_, CallEnd::kArrived);
    });
  }

 private:
  void Send(CallId id, int64_t) override {
    id_ = id;
    held_ = true;
  }
  void Grant(int64_t) override {}
  void EndUnsent(absl::Status) override {}
  void Abort() override {}

  Link& link_;
  CallId id_;
  bool held_ = false;
};

}  // namespace sluice::testing

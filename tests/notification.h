#pragma once

#include "gtest/gtest.h"
#include "tests/watched.h"

namespace sluice::testing {

// An event that happens once, and that a test waits for. Thread-safe. It works like absl::Notification, but
// ThreadSanitizer recognizes its ordering.
class Notification {
 public:
  void Notify() {
    happened_.Change([](bool& happened) {
      EXPECT_FALSE(happened) << "for the second time";
      happened = true;
    });
  }
  bool HasBeenNotified() const { return happened_.Get(); }
  // Returns false if the event did not happen in time.
  bool Await() const {
    return happened_.Await([](bool happened) { return happened; });
  }

 private:
  Watched<bool> happened_;
};

}  // namespace sluice::testing

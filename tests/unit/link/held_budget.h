#pragma once

#include <cstdint>
#include <utility>

#include "sluice/link.h"

#include "gtest/gtest.h"
#include "lib/link/link_loop.h"

namespace sluice::testing {

// Takes bytes of a link's budget, to a packet, until Release, like responses that were granted and do not arrive. The
// link needs a stall_timeout longer than the test. Not thread-safe.
class HeldBudget {
 public:
  // The budget must have room for the bytes.
  HeldBudget(Link& link, int64_t bytes) : link_(link) {
    link_.Await([&](LinkLoop& loop) {
      response_.Hold(loop, 0, /*ahead=*/false);
      response_.Ready(loop, 1000);
      const LinkProfile& profile = loop.schedule().options().profile;
      const int64_t packets = (bytes - loop.schedule().State().in_flight_bytes) / profile.frame_bytes;
      handshake_.Hold(loop, packets * profile.packet_payload_bytes, /*ahead=*/true);
      EXPECT_GT(loop.schedule().State().in_flight_bytes, bytes - profile.frame_bytes);
    });
  }
  ~HeldBudget() { Release(); }

  void Release() {
    link_.Await([this](LinkLoop& loop) {
      handshake_.Release(loop);
      response_.Release(loop);
    });
  }

 private:
  class HeldCall final : public Scheduled {
   public:
    void Hold(LinkLoop& loop, int64_t bytes, bool ahead) {
      const CallRequest request{.response_bytes = bytes, .tag = tag()};
      const TimePoint deadline = loop.now() + std::chrono::hours(1);
      BlockId block = 0;
      const absl::Status submitted = ahead ? loop.schedule_run().SubmitAhead(request, deadline, block)
                                           : loop.schedule_run().Submit({&request, 1}, deadline, block);
      EXPECT_TRUE(submitted.ok()) << submitted;
      EXPECT_TRUE(sent_);
    }
    void Ready(LinkLoop& loop, int64_t bytes) { loop.schedule_run().OnReady(id(), bytes, 0); }
    void Release(LinkLoop& loop) {
      if (std::exchange(sent_, false)) loop.schedule_run().OnFinished(id(), CallEnd::kArrived);
    }

   private:
    void Send(int64_t) override { sent_ = true; }
    void Grant(int64_t) override {}
    void EndUnsent(absl::Status) override {}
    void Abort() override {}

    bool sent_ = false;
  };

  Link& link_;
  HeldCall response_;   // without it, the handshake would count as nothing, since a call that is alone may always go
  HeldCall handshake_;  // may take any number of bytes at once
};

}  // namespace sluice::testing

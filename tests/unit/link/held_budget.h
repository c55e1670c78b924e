#pragma once

#include <cstdint>
#include <utility>

#include "sluice/link.h"

#include "gtest/gtest.h"
#include "lib/link/link_core.h"

namespace sluice::testing {

// Takes bytes of a link's budget, to a packet, until Release: as responses that were granted and do not come. The link
// needs a stall_timeout that is longer than the test. Not thread-safe.
class HeldBudget {
 public:
  // There is room for them.
  HeldBudget(Link& link, int64_t bytes) : link_(link) {
    link_.Await([&](LinkCore& core) {
      response_.Hold(core, 0, LinkCore::Place::kQueued);
      response_.Ready(core, 1000);
      const LinkProfile& profile = core.schedule().options().profile;
      const int64_t packets = (bytes - core.schedule().State().in_flight_bytes) / profile.frame_bytes;
      handshake_.Hold(core, packets * profile.packet_payload_bytes, LinkCore::Place::kAhead);
      EXPECT_GT(core.schedule().State().in_flight_bytes, bytes - profile.frame_bytes);
    });
  }
  ~HeldBudget() { Release(); }

  void Release() {
    link_.Await([this](LinkCore& core) {
      handshake_.Release(core);
      response_.Release(core);
    });
  }

 private:
  class HeldCall final : public Scheduled {
   public:
    void Hold(LinkCore& core, int64_t bytes, LinkCore::Place place) {
      BlockId block = 0;
      const absl::Status submitted = core.SubmitOther(*this, bytes, core.now() + std::chrono::hours(1), place, block);
      EXPECT_TRUE(submitted.ok()) << submitted;
      EXPECT_TRUE(sent_);
    }
    void Ready(LinkCore& core, int64_t bytes) { core.Ready(id_, bytes, 0); }
    void Release(LinkCore& core) {
      if (std::exchange(sent_, false)) core.Finish(id_, CallEnd::kArrived);
    }

   private:
    void Send(CallId id, int64_t) override {
      id_ = id;
      sent_ = true;
    }
    void Grant(int64_t) override {}
    void EndUnsent(absl::Status) override {}
    void Abort() override {}

    CallId id_;
    bool sent_ = false;
  };

  Link& link_;
  HeldCall response_;   // without it, the handshake would count as nothing: a call that is alone goes
  HeldCall handshake_;  // takes any bytes at once
};

}  // namespace sluice::testing

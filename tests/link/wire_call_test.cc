#include "lib/link/wire_call.h"

#include "tests/link/virtual_link_fixture.h"

namespace sluice {
namespace {

using testing::VirtualWorker;
using WireCallTest = testing::VirtualLinkTest;

TEST_F(WireCallTest, AStatusWhoseTextEndsWithASpaceArrives) {
  StartLink();
  VirtualWorker& worker = Serve("worker:1", [](auto& call) { call.Fail(absl::NotFoundError("lost: ")); });
  EXPECT_EQ(AwaitEnd(Ask(worker.address())).status, absl::NotFoundError("lost: "));
}

// As other clients of gRPC do. The status may be that of a server behind the worker.
TEST_F(WireCallTest, AWorkersOwnCancelledReachesTheCaller) {
  StartLink();
  VirtualWorker& resets = Serve("resets:1", [](auto& call) { call.Reset(Http2Error::kCancel); });
  VirtualWorker& fails = Serve("fails:1", [](auto& call) { call.Fail(absl::CancelledError("the backend went away")); });
  EXPECT_EQ(AwaitEnd(Ask(resets.address())).status, absl::CancelledError("stream was reset with CANCEL (8)"));
  EXPECT_EQ(AwaitEnd(Ask(fails.address())).status, absl::CancelledError("the backend went away"));
}

}  // namespace
}  // namespace sluice

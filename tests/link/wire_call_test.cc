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

}  // namespace
}  // namespace sluice

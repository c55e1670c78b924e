#include "lib/link/worker_pool.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/link/virtual_link_fixture.h"

namespace sluice {
namespace {

class WorkerPoolTest : public testing::VirtualLinkTest {
 protected:
  void SetUp() override { StartLink(); }
  WorkerPool& pool() { return loop_->workers(); }
};

TEST_F(WorkerPoolTest, TheSameTargetAndNameAreTheSameWorker) {
  const auto worker = pool().Find("10.0.0.1:7000", nullptr);
  EXPECT_EQ(pool().Find("10.0.0.1:7000", nullptr), worker);
  EXPECT_NE(pool().Find("10.0.0.2:7000", nullptr), worker);
  EXPECT_NE(pool().Find("10.0.0.1:7000", nullptr, "name"), worker);
}

TEST_F(WorkerPoolTest, TheSameOptionsAreTheSameTlsContextWhileItIsUsed) {
  auto first = pool().FindTls({});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*pool().FindTls({}), *first);
  auto named = pool().FindTls({.server_name = "name"});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_NE(*named, *first);
  EXPECT_FALSE(pool().uses_tls());
  workers_["tls"] = pool().Find("10.0.0.1:7000", *first);
  EXPECT_TRUE(pool().uses_tls());
  EXPECT_NE(pool().Find("10.0.0.1:7000", *named), workers_["tls"]);
}

TEST_F(WorkerPoolTest, AWorkerWithoutUsersIsDestroyedAtTheEndOfTheTurn) {
  executor_.Turn([this] {
    auto worker = pool().Find("10.0.0.1:7000", nullptr);
    worker.reset();
    EXPECT_TRUE(pool().has_unused());
    EXPECT_TRUE(loop_->worker_table().IsWanted("10.0.0.1:7000"));
  });
  EXPECT_FALSE(pool().has_unused());
  EXPECT_FALSE(loop_->worker_table().IsWanted("10.0.0.1:7000"));
}

TEST_F(WorkerPoolTest, EachConnectionIsInOneSlice) {
  for (int i = 0; i < 5; ++i) {
    const std::string address = absl::StrCat("10.0.0.", i, ":7000");
    Serve(address, [](auto&) {});
    Connect(address);
  }
  workers_["10.0.0.9:7000"] = pool().Find("10.0.0.9:7000", nullptr);  // not connected
  std::multiset<size_t> seen;
  std::optional<WorkerPool::Key> last;
  int slices = 0;
  do {
    WorkerPool::TcpSlice slice = pool().TcpSockets(last, 4);
    for (const WorkerTable::Socket& socket : slice.sockets) seen.insert(socket.worker);
    last = std::move(slice.last);
    ++slices;
  } while (last.has_value());
  EXPECT_EQ(slices, 2);
  EXPECT_EQ(seen, (std::multiset<size_t>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace sluice

#include "lib/sharing/client_lease.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(ClientLeaseTest, SeveralChangesAreSentAsOne) {
  ClientLease lease;
  lease.SetBytes(1000);
  lease.SetSafeBytes(200);
  EXPECT_TRUE(lease.changed());
  const ShareLease sent = lease.Send(TimePoint(), /*client=*/7);
  EXPECT_EQ(sent.client, 7u);
  EXPECT_EQ(sent.id, 1u);
  EXPECT_EQ(sent.bytes, 1000);
  EXPECT_EQ(sent.safe_bytes, 200);
  EXPECT_FALSE(lease.changed());
}

TEST(ClientLeaseTest, AnEarlierLeaseMayBeUsedUntilALaterOneIsAcknowledged) {
  ClientLease lease;
  for (const int64_t bytes : {3000, 500, 1000}) {
    lease.SetBytes(bytes);
    lease.Send(TimePoint(), 1);
  }
  EXPECT_EQ(lease.MostBytes(), 3000);
  lease.Acknowledge(2);
  EXPECT_EQ(lease.MostBytes(), 1000);
}

TEST(ClientLeaseTest, TheLargestOfManyThatAreNotAcknowledgedIsKept) {
  ClientLease lease;
  for (int64_t bytes = 100; bytes > 0; --bytes) {
    lease.SetBytes(bytes);
    lease.Send(TimePoint(), 1);
  }
  EXPECT_EQ(lease.MostBytes(), 100);
  lease.Acknowledge(100);
  EXPECT_EQ(lease.MostBytes(), 1);
}

TEST(ClientLeaseTest, AnExpiredLeaseLeavesTheLargestSafeShare) {
  ClientLease lease;
  lease.SetBytes(1000);
  lease.SetSafeBytes(300);
  lease.Send(TimePoint(), 1);
  lease.SetSafeBytes(200);
  lease.Send(TimePoint(), 1);
  lease.Expire();
  EXPECT_EQ(lease.MostBytes(), 0);
  EXPECT_EQ(lease.safe_bytes(), 300);
  EXPECT_FALSE(lease.sent());
}

}  // namespace
}  // namespace sluice

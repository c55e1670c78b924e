#include "lib/net/opening_pool.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice {
namespace {

class OpeningPoolTest : public ::testing::Test {
 protected:
  OpeningPoolTest() { pool_.SetLimit(2); }

  OpeningPool pool_;
  std::string ended_;
  OpeningPool::Place a_{[this] { ended_ += 'a'; }};
  OpeningPool::Place b_{[this] { ended_ += 'b'; }};
  OpeningPool::Place c_{[this] { ended_ += 'c'; }};
};

TEST_F(OpeningPoolTest, TheOldestMakesRoom) {
  EXPECT_EQ(pool_.Add("one", a_), 0u);
  EXPECT_EQ(pool_.Add("one", b_), 0u);
  EXPECT_EQ(pool_.Add("one", c_), 1u);
  EXPECT_EQ(ended_, "a");
}

TEST_F(OpeningPoolTest, AClientThatIsKnownHasLeft) {
  pool_.Add("one", a_);
  pool_.Add("one", b_);
  a_.Leave();
  EXPECT_EQ(pool_.Add("one", c_), 0u);
  EXPECT_EQ(ended_, "");
}

TEST_F(OpeningPoolTest, TheOldestEndsIfItsServerNeedsRoom) {
  pool_.Add("one", a_);
  pool_.Add("one", b_);
  EXPECT_FALSE(pool_.EndOldest("two"));
  EXPECT_TRUE(pool_.EndOldest("one"));
  EXPECT_EQ(ended_, "a");
  EXPECT_TRUE(pool_.EndOldest("one"));
  EXPECT_FALSE(pool_.EndOldest("one"));
}

TEST_F(OpeningPoolTest, AListenerTakesNoPlaceFromAnother) {
  pool_.Add("one", a_);
  pool_.Add("two", b_);
  pool_.Add("two", c_);
  EXPECT_EQ(ended_, "");
  pool_.SetLimit(1);
  OpeningPool::Place d([this] { ended_ += 'd'; });
  EXPECT_EQ(pool_.Add("two", d), 2u) << "a limit that was lowered";
  EXPECT_EQ(ended_, "bc");
}

}  // namespace
}  // namespace sluice

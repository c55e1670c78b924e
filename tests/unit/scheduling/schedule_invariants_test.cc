#include "lib/scheduling/schedule_invariants.h"

#include <fstream>
#include <functional>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduling/live_calls.h"

namespace sluice {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Read(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Returns the first group of each match, with white space as clang-format would have it in one line.
std::vector<std::string> Matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match) {
    found.push_back(std::regex_replace((*match)[1].str(), std::regex("\\s+"), " "));
  }
  return found;
}

std::vector<std::string> ConditionsOfTheCode() {
  return Matches(Read(SLUICE_INVARIANTS_SOURCE), R"(SLUICE_HOLDS\(breaches,\s*([^;]*)\);)");
}

// The state in which one condition alone is broken.
struct Case {
  std::string condition;
  std::function<void(Breaches& breaches)> check;
};

Case OfSums(std::string condition, const std::function<void(ScheduleSums&)>& breaks) {
  ScheduleSums sums{.submitted_calls = 10,
                    .ended_calls = 3,
                    .waiting_calls = 2,
                    .sent_calls = 2,
                    .ready_calls = 1,
                    .in_flight_calls = 2,
                    .listed_sent_calls = 2,
                    .straggling_calls = 1,
                    .silent_calls = 1,
                    .blocks = 2,
                    .has_turns = true,
                    .draining = true,
                    .charged_bytes = 1000,
                    .early_bytes = 300,
                    .handshake_bytes = 100,
                    .slow_bytes = 200};
  Breaches none(Breaches::Response::kCount);
  CheckSums(sums, none);
  EXPECT_FALSE(none.Take().has_value());
  breaks(sums);
  return {std::move(condition), [sums](Breaches& breaches) { CheckSums(sums, breaches); }};
}

Case OfIdleSums(std::string condition, const std::function<void(ScheduleSums&)>& breaks) {
  return OfSums(std::move(condition), [&](ScheduleSums& sums) {
    sums = {.submitted_calls = 10, .ended_calls = 10};
    breaks(sums);
  });
}

std::vector<Case> Cases() {
  return {
      OfSums("s.early_bytes >= 0 && s.handshake_bytes >= 0 && s.slow_bytes >= 0",
             [](ScheduleSums& sums) { sums.slow_bytes = -1; }),
      OfSums("s.early_bytes + s.handshake_bytes + s.slow_bytes <= s.charged_bytes",
             [](ScheduleSums& sums) { sums.charged_bytes = 599; }),
      OfSums("s.submitted_calls == s.waiting_calls + s.out_calls() + s.ended_calls",
             [](ScheduleSums& sums) { ++sums.ended_calls; }),
      OfSums("(s.blocks == 0) == (s.waiting_calls + s.out_calls() == 0)", [](ScheduleSums& sums) { sums.blocks = 0; }),
      OfSums("s.listed_sent_calls == s.sent_calls", [](ScheduleSums& sums) { ++sums.listed_sent_calls; }),
      OfSums("s.straggling_calls >= 0 && s.straggling_calls <= s.sent_calls",
             [](ScheduleSums& sums) { sums.straggling_calls = 3; }),
      OfSums("s.silent_calls >= 0 && s.silent_calls <= s.in_flight_calls",
             [](ScheduleSums& sums) { sums.silent_calls = -1; }),
      OfSums("s.large_header_bytes >= 0 && s.silent_header_bytes >= 0",
             [](ScheduleSums& sums) { sums.large_header_bytes = -1; }),
      OfIdleSums("s.sent_calls + s.silent_calls > 0 || s.large_header_bytes == 0",
                 [](ScheduleSums& sums) { sums.large_header_bytes = 1; }),
      OfSums("s.remaining_bytes >= 0 && s.ready_bytes >= 0", [](ScheduleSums& sums) { sums.remaining_bytes = -1; }),
      OfIdleSums("s.blocks > 0 || s.remaining_bytes == 0", [](ScheduleSums& sums) { sums.remaining_bytes = 1; }),
      OfIdleSums("s.out_calls() > 0 || s.ready_bytes == 0", [](ScheduleSums& sums) { sums.ready_bytes = 1; }),
      OfIdleSums("s.out_calls() > 0 || !s.has_turns", [](ScheduleSums& sums) { sums.has_turns = true; }),
      OfIdleSums("s.out_calls() > 0 || s.draining || s.charged_bytes == 0",
                 [](ScheduleSums& sums) { sums.charged_bytes = 1; }),
      OfIdleSums("s.out_calls() > 0 || s.early_bytes + s.handshake_bytes + s.slow_bytes == 0",
                 [](ScheduleSums& sums) {
                   sums.draining = true;
                   sums.charged_bytes = 1;
                   sums.early_bytes = 1;
                 }),
      {"!s.limited || s.alone || s.charged_bytes <= std::max(s.room_bytes, s.charged_before_bytes)",
       [](Breaches& breaches) {
         CheckGrant({.charged_before_bytes = 100, .charged_bytes = 201, .room_bytes = 200}, breaches);
       }},
  };
}

TEST(ScheduleInvariantsTest, EachConditionIsCountedIfItAloneIsBroken) {
  std::vector<std::string> conditions;
  for (const Case& broken : Cases()) {
    SCOPED_TRACE(broken.condition);
    Breaches breaches(Breaches::Response::kCount);
    broken.check(breaches);
    const std::optional<InvariantBreach> breach = breaches.Take();
    ASSERT_TRUE(breach.has_value());
    EXPECT_EQ(breach->condition, broken.condition);
    EXPECT_EQ(breach->file, "lib/scheduling/schedule_invariants.h");
    EXPECT_EQ(breach->breaches, 1);
    conditions.push_back(broken.condition);
  }
  EXPECT_THAT(conditions, ElementsAreArray(ConditionsOfTheCode()));
}

TEST(ScheduleInvariantsTest, TheListOfTheDocumentsIsTheListOfTheCode) {
  const std::string page = Read(SLUICE_SCHEDULING_DOC);
  const std::vector<std::string> documented = Matches(page, R"(\n\* [0-9]+: `([^`]*)`)");
  EXPECT_THAT(documented, ElementsAreArray(ConditionsOfTheCode()));
}

TEST(ScheduleInvariantsTest, AGrantMayFillTheRoomOrGoAlone) {
  Breaches breaches(Breaches::Response::kCount);
  for (const GrantSums& sums : std::vector<GrantSums>{
           {.charged_before_bytes = 100, .charged_bytes = 200, .room_bytes = 200},
           {.alone = true, .charged_bytes = 300, .room_bytes = 200},
           {.limited = false, .charged_before_bytes = 200, .charged_bytes = 300, .room_bytes = 200},
           {.charged_before_bytes = 300, .charged_bytes = 300, .room_bytes = 200},
       }) {
    CheckGrant(sums, breaches);
  }
  EXPECT_FALSE(breaches.Take().has_value());
}

// The steps of calls, without a schedule that decides whether they may be taken. Breaches are counted as in a release
// build.
class BrokenScheduleTest : public ::testing::Test {
 protected:
  BrokenScheduleTest() {
    options_.profile.buffer_bytes = 32'768;
    calls_.emplace(options_, breaches_);
  }

  Call& Queue(int64_t bytes) {
    QueuedBlock& block = calls_->blocks().Add(now_, TimePoint::max(), 0);
    return *calls_->Find(calls_->Queue(block, {.response_bytes = bytes, .worker = ++worker_}, false, now_));
  }
  std::string Condition() {
    const std::optional<InvariantBreach> breach = breaches_.Take();
    return breach.has_value() ? std::string(breach->condition) : "";
  }

  ScheduleOptions options_;
  Breaches breaches_{Breaches::Response::kCount};
  std::optional<LiveCalls> calls_;
  TimePoint now_;
  uint32_t worker_ = 0;
};

TEST_F(BrokenScheduleTest, AGrantThatOverflowsThePortIsCounted) {
  const auto grant = [this](int64_t bytes) {
    Call& call = Queue(bytes);
    calls_->Send(call, 0, now_);
    calls_->TakeReady(call, bytes, 0, now_);
    calls_->Grant(call, bytes, now_);
    calls_->Check();
  };
  grant(20'000);
  grant(5000);
  EXPECT_EQ(Condition(), "");
  grant(10'000);
  EXPECT_EQ(Condition(), "!s.limited || s.alone || s.charged_bytes <= std::max(s.room_bytes, s.charged_before_bytes)");
}

TEST_F(BrokenScheduleTest, AChargeThatIsNeverReleasedIsCountedAndTheScheduleGoesOn) {
  calls_->budget().Charge(1000, 0);
  calls_->Check();
  EXPECT_EQ(Condition(), "s.out_calls() > 0 || s.draining || s.charged_bytes == 0");
  Call& call = Queue(5000);
  calls_->Send(call, 5000, now_);
  calls_->Receive(call, 5000, now_);
  calls_->Finish(call, CallEnd::kArrived, now_);
  EXPECT_EQ(calls_->ended(), 1);
}

TEST_F(BrokenScheduleTest, AChargeThatIsReleasedTwiceIsCounted) {
  Call& call = Queue(5000);
  calls_->Send(call, 5000, now_);
  calls_->budget().Charge(-call.charged_bytes, -call.early_charged_bytes);
  calls_->Receive(call, 5000, now_);
  calls_->Check();
  EXPECT_EQ(Condition(), "s.early_bytes >= 0 && s.handshake_bytes >= 0 && s.slow_bytes >= 0");
}

}  // namespace
}  // namespace sluice

#include "lib/net/asio_resolution.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/asio_executor.h"
#include "tests/notification.h"
#include "tests/unit/net/link_thread.h"

namespace sluice {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::EventLog;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::RunOn;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Blocks look-ups of "slow-..." until they are released.
class SlowNames {
 public:
  AsioExecutor::Options Options() {
    return {.on_timer_lateness = nullptr, .look_up = [this](const std::string& host, int port) {
              asked_.Add(host);
              EXPECT_TRUE(!host.starts_with("slow") || released_.Await());
              return std::vector<WorkerAddress>{{absl::StrCat("10.0.0.1:", port)}};
            }};
  }
  void Release() { released_.Notify(); }
  const EventLog& asked() const { return asked_; }

 private:
  EventLog asked_;
  testing::Notification released_;
};

class AsioResolutionTest : public ::testing::Test {
 protected:
  ~AsioResolutionTest() override {
    RunOn(executor_, [this] { question_.reset(); });
  }

  void Ask(const std::string& target) {
    question_ = executor_.Resolve(target, [this](absl::StatusOr<std::vector<WorkerAddress>> answer) {
      if (!answer.ok()) return log_.Add(answer.status().ToString());
      std::vector<std::string> addresses;
      for (const WorkerAddress& address : *answer) addresses.push_back(address.text);
      log_.Add(absl::StrJoin(addresses, " "));
    });
  }
  std::string AnswerOf(const std::string& target) {
    const size_t before = log_.events().size();
    RunOn(executor_, [&] { Ask(target); });
    return log_.Await(before + 1).at(before);
  }

  EventLog log_;
  AsioExecutor executor_;
  std::shared_ptr<void> question_;
};

TEST_F(AsioResolutionTest, AnswersWhatNeedsNoLookUp) {
  EXPECT_EQ(AnswerOf("10.0.0.1:7000"), "10.0.0.1:7000");
  EXPECT_EQ(AnswerOf("[::1]:7000"), "[::1]:7000");
  EXPECT_EQ(AnswerOf("ipv4:10.0.0.1:7000,10.0.0.2:7000"), "10.0.0.1:7000 10.0.0.2:7000");
  EXPECT_EQ(AnswerOf("unix:///run/w"), "unix:/run/w");
  EXPECT_EQ(AnswerOf("unix-abstract:w"), "unix-abstract:w");
}

TEST_F(AsioResolutionTest, NeverFromWithinTheCall) {
  for (const char* target : {"10.0.0.1:7000", "unix:/run/w", "no address"}) {
    RunOn(executor_, [&] {
      const size_t before = log_.events().size();
      Ask(target);
      EXPECT_THAT(log_.events(), SizeIs(before));
    });
    RunOn(executor_, [] {});
  }
  EXPECT_THAT(log_.events(), SizeIs(3));
}

TEST_F(AsioResolutionTest, LooksUpANameAndGivesEachAddressOnce) {
  for (const char* target : {"localhost:7000", "dns:///localhost:7000", "dns:localhost:7000"}) {
    EXPECT_THAT(AnswerOf(target),
                AnyOf("127.0.0.1:7000", "[::1]:7000", "127.0.0.1:7000 [::1]:7000", "[::1]:7000 127.0.0.1:7000"));
  }
}

TEST_F(AsioResolutionTest, SaysWhichNameHasNoAddress) {
  EXPECT_THAT(AnswerOf("w-7.invalid:7000"),
              AnyOf(StartsWith("NOT_FOUND: look up w-7.invalid: "), StartsWith("UNAVAILABLE: look up w-7.invalid: ")))
      << "the second where there is no name server";
}

TEST_F(AsioResolutionTest, SaysWhatIsNoAddress) {
  EXPECT_THAT(AnswerOf("no address"), StartsWith("INVALID_ARGUMENT: worker address \"no address\""));
}

TEST_F(AsioResolutionTest, AQuestionThatIsDroppedIsNotAnswered) {
  RunOn(executor_, [&] {
    for (const char* target : {"localhost:1", "10.0.0.1:1", "nobody"}) {
      Ask(target);
      question_.reset();
    }
  });
  EXPECT_THAT(AnswerOf("localhost:7000"), HasSubstr(":7000"));
  EXPECT_THAT(log_.events(), SizeIs(1));
}

// The slow names represent names whose name server does not respond.
class SlowNamesTest : public ::testing::Test {
 protected:
  ~SlowNamesTest() override {
    RunOn(executor_, [this] { questions_.clear(); });
  }

  // On the link's thread. The log gets the target when it is answered.
  void Ask(const std::string& target) {
    questions_.push_back(executor_.Resolve(
        target, [this, target](const absl::StatusOr<std::vector<WorkerAddress>>&) { log_.Add(target); }));
  }
  void AskFromHere(const std::string& target) {
    RunOn(executor_, [&] { Ask(target); });
  }

  SlowNames names_;
  EventLog log_;
  AsioExecutor executor_{names_.Options()};
  std::vector<std::shared_ptr<void>> questions_;
};

TEST_F(SlowNamesTest, AFewSlowNamesDoNotStopTheOthers) {
  for (int i = 0; i < 20; ++i) AskFromHere(absl::StrCat("slow-", i, ":1"));
  AskFromHere("quick-1:1");
  EXPECT_THAT(log_.Await(1), ElementsAre("quick-1:1"));
  AskFromHere("quick-2:1");
  EXPECT_THAT(log_.Await(2), ElementsAre("quick-1:1", "quick-2:1"));
  names_.Release();
  EXPECT_THAT(log_.Await(22), SizeIs(22));
}

// Any number of names that are not known to be slow, as a client can name them.
TEST_F(SlowNamesTest, NamesThatWereFoundAreLookedUpWhileAnyNumberIsSlow) {
  AskFromHere("quick-1:1");
  EXPECT_THAT(log_.Await(1), ElementsAre("quick-1:1"));
  for (int i = 0; i < 100; ++i) AskFromHere(absl::StrCat("slow-", i, ":1"));
  AskFromHere("quick-1:2");
  EXPECT_THAT(log_.Await(2), ElementsAre("quick-1:1", "quick-1:2"));
  AskFromHere("quick-2:1");
  constexpr size_t kThreads = LookUpThreads::kThreads - LookUpThreads::kForKnown;
  EXPECT_THAT(names_.asked().Await(2 + kThreads), SizeIs(2 + kThreads)) << "quick-1 twice; quick-2 waits";
  names_.Release();
  EXPECT_THAT(log_.Await(103), SizeIs(103));
}

TEST_F(SlowNamesTest, ASlowNameTakesOneThread) {
  for (int i = 1; i <= 100; ++i) AskFromHere(absl::StrCat("slow:", i));
  AskFromHere("quick:1");
  EXPECT_THAT(log_.Await(1), ElementsAre("quick:1"));
  EXPECT_THAT(names_.asked().Await(2), ::testing::UnorderedElementsAre("slow", "quick"));
  names_.Release();
  EXPECT_THAT(log_.Await(101), SizeIs(101));
}

TEST_F(SlowNamesTest, ANameThatNobodyWaitsForIsNotLookedUp) {
  constexpr size_t kThreads = LookUpThreads::kThreads - LookUpThreads::kForKnown;
  RunOn(executor_, [&] {
    for (size_t i = 0; i < kThreads; ++i) Ask(absl::StrCat("slow-", i, ":1"));
  });
  EXPECT_THAT(names_.asked().Await(kThreads), SizeIs(kThreads)) << "as many as there are threads for new names";
  RunOn(executor_, [&] {
    Ask("dropped:1");
    questions_.pop_back();
    Ask("last:1");
  });
  names_.Release();
  EXPECT_THAT(log_.Await(kThreads + 1), SizeIs(kThreads + 1));
  EXPECT_THAT(names_.asked().events(), SizeIs(kThreads + 1));
  EXPECT_EQ(names_.asked().events().back(), "last");
}

TEST_F(AsioResolutionTest, AQuestionMayBeDroppedByItsAnswer) {
  for (const char* target : {"localhost:1", "10.0.0.1:1"}) {
    const size_t before = log_.events().size();
    RunOn(executor_, [&] {
      question_ = executor_.Resolve(target, [this](const absl::StatusOr<std::vector<WorkerAddress>>& answer) {
        question_.reset();
        log_.Add(answer.status().ToString());
      });
    });
    EXPECT_EQ(log_.Await(before + 1).at(before), "OK");
  }
}

TEST_F(AsioResolutionTest, TheExecutorMayEndWithQuestionsOpen) {
  for (int i = 0; i < 5; ++i) {
    EventLog log;
    AsioExecutor executor;
    std::shared_ptr<void> question;
    RunOn(executor, [&] {
      question = executor.Resolve("localhost:1",
                                  [&](const absl::StatusOr<std::vector<WorkerAddress>>&) { log.Add("answer"); });
    });
    executor.Stop();
    question.reset();
  }
}

}  // namespace
}  // namespace sluice

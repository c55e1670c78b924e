#include "lib/link/outlier_ejection.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/has_code.h"
#include "tests/random_seed.h"
#include "tests/unit/link/outlier_ejection_oracle.h"

namespace sluice {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string NameOf(EjectionReason reason) {
  switch (reason) {
    case EjectionReason::kErrors:
      return "errors";
    case EjectionReason::kNoResponse:
      return "no response";
    case EjectionReason::kFailurePercentage:
      return "percentage";
    case EjectionReason::kLatency:
      return "latency";
    case EjectionReason::kProbe:
      return "probe";
  }
  return "?";
}

// Some workers, and time that the test sets.
class OutlierEjectionTest : public ::testing::Test {
 protected:
  void SetWorkers(size_t count) {
    std::vector<size_t> workers(count);
    for (size_t i = 0; i < count; ++i) workers[i] = i;
    ejection_.SetWorkers(workers, changes_);
  }
  // A call that is sent now, and ends after `took`.
  void Call(size_t worker, OutlierEjection::End end, nanoseconds took = milliseconds(1),
            const std::string& method = "/s/Get") {
    const TimePoint sent = now_;
    now_ += took;
    ejection_.OnEnded(now_, {.method = method, .worker = worker, .sent = sent, .end = end, .took = took}, changes_);
    EXPECT_LE(ejection_.ejected(), ejection_.MaxEjected());
  }
  // Every worker responds this often, except for one.
  void Respond(int times, size_t workers, std::optional<size_t> except = std::nullopt) {
    for (int i = 0; i < times; ++i) {
      for (size_t worker = 0; worker < workers; ++worker) {
        if (worker != except) Call(worker, OutlierEjection::End::kResponded);
      }
    }
  }
  // The worker fails this often. The other workers respond many times before that, and once after each failure.
  void Fail(int times, size_t worker, size_t workers) {
    Respond(static_cast<int>(200 / workers) + 1, workers, worker);
    for (int i = 0; i < times; ++i) {
      Call(worker, OutlierEjection::End::kFailed);
      Respond(1, workers, worker);
    }
  }
  // The changes since the last call, such as "3 errors" and "3 returned".
  std::vector<std::string> Changes() {
    std::vector<std::string> words;
    for (const OutlierEjection::Change& change : changes_) {
      words.push_back(
          absl::StrCat(change.worker, " ", change.ejected.has_value() ? NameOf(*change.ejected) : "returned"));
    }
    changes_.clear();
    return words;
  }
  bool IsAvoided(size_t worker) const { return ejection_.IsAvoided(now_, worker); }
  // How long the worker is avoided from now on.
  seconds AvoidedFor(size_t worker) const {
    TimePoint time = now_;
    while (ejection_.IsAvoided(time, worker)) time += milliseconds(100);
    return duration_cast<seconds>(time - now_);
  }

  OutlierDetection options_;
  OutlierEjection ejection_{options_};
  OutlierEjection::Changes changes_;
  TimePoint now_{seconds(1000)};
};

TEST_F(OutlierEjectionTest, FiveErrorsInARowEject) {
  SetWorkers(10);
  Fail(4, 3, 10);
  EXPECT_FALSE(IsAvoided(3));
  Call(3, OutlierEjection::End::kResponded);
  Fail(4, 3, 10);
  EXPECT_THAT(Changes(), IsEmpty()) << "the response was between them";
  Call(3, OutlierEjection::End::kFailed);
  EXPECT_THAT(Changes(), ElementsAre("3 errors"));
  EXPECT_TRUE(IsAvoided(3));
  EXPECT_FALSE(IsAvoided(4));
  EXPECT_EQ(AvoidedFor(3), seconds(30));
}

TEST_F(OutlierEjectionTest, OneOfTwoIsEjectedAndThenTheOtherIsNot) {
  SetWorkers(2);
  Fail(5, 1, 2);
  EXPECT_THAT(Changes(), ElementsAre("1 errors"));
  for (int i = 0; i < 100; ++i) Call(0, OutlierEjection::End::kFailed);
  EXPECT_THAT(Changes(), IsEmpty());
}

TEST_F(OutlierEjectionTest, AFailureCountsIfAnotherWorkerHasAnsweredSinceTheOneBefore) {
  SetWorkers(10);
  Respond(10, 10);
  for (int i = 0; i < 100; ++i) {
    for (size_t worker = 0; worker < 10; ++worker) Call(worker, OutlierEjection::End::kFailed);
    Call(3, OutlierEjection::End::kResponded, milliseconds(1), "/s/List");
    Call(4, OutlierEjection::End::kResponded, milliseconds(1), "/s/List");
  }
  EXPECT_THAT(Changes(), IsEmpty()) << "the method fails at all workers";
}

TEST_F(OutlierEjectionTest, AResponseToAnotherMethodDoesNotHideFailures) {
  SetWorkers(10);
  Respond(10, 10);
  for (int i = 0; i < 5; ++i) {
    Call(3, OutlierEjection::End::kFailed);
    Call(3, OutlierEjection::End::kResponded, milliseconds(1), "/s/List");
    Respond(1, 10, 3);
  }
  EXPECT_THAT(Changes(), ElementsAre("3 errors"));
}

TEST_F(OutlierEjectionTest, FailuresThatOthersHaveTooNeedToBeMore) {
  SetWorkers(10);
  const auto fail = [this](int times) {
    for (int i = 0; i < times; ++i) {
      Call(3, OutlierEjection::End::kFailed);
      for (size_t worker = 4; worker < 10; ++worker) {
        Call(worker, (i + worker) % 2 == 0 ? OutlierEjection::End::kFailed : OutlierEjection::End::kResponded);
      }
    }
  };
  fail(25);
  EXPECT_THAT(Changes(), IsEmpty()) << "by chance, this happens once in 30 million times";
  fail(15);
  EXPECT_THAT(Changes(), ElementsAre("3 errors"));
}

TEST_F(OutlierEjectionTest, AnInventedMethodDoesNotReplaceOneThatIsInUse) {
  SetWorkers(10);
  Respond(10, 10);
  for (int i = 0; i < 5; ++i) {
    Call(3, OutlierEjection::End::kFailed);
    for (size_t j = 0; j < 2 * OutlierEjection::kMaxMethods; ++j) {
      Call(j % 10, OutlierEjection::End::kResponded, nanoseconds(1), absl::StrCat("/invented/", i, "/", j));
    }
    Respond(1, 10, 3);
  }
  EXPECT_THAT(Changes(), ElementsAre("3 errors"));
  const auto list = [this] {
    for (size_t worker = 0; worker < 10; ++worker) {
      Call(worker, worker == 4 ? OutlierEjection::End::kFailed : OutlierEjection::End::kResponded, nanoseconds(1),
           "/s/List");
    }
  };
  options_.max_ejection_percent = 100;
  for (int i = 0; i < 20; ++i) list();
  EXPECT_THAT(Changes(), IsEmpty()) << "all methods are in use";
  now_ += seconds(10);
  for (int i = 0; i < 20; ++i) list();
  EXPECT_THAT(Changes(), ElementsAre("4 errors"));
}

TEST_F(OutlierEjectionTest, AClientsDeadlineIsNoFailure) {
  using End = OutlierEjection::End;
  const auto end_of = [](absl::StatusCode code, bool ready, bool has_status) {
    return OutlierEjection::EndOf(code, ready, has_status);
  };
  for (const bool has_status : {false, true}) {
    EXPECT_EQ(end_of(absl::StatusCode::kDeadlineExceeded, false, has_status), End::kGivenUp);
    EXPECT_EQ(end_of(absl::StatusCode::kDeadlineExceeded, true, has_status), End::kResponded);
  }
  EXPECT_EQ(end_of(absl::StatusCode::kCancelled, false, false), End::kGivenUp);
  EXPECT_EQ(end_of(absl::StatusCode::kCancelled, true, false), End::kResponded);
  EXPECT_EQ(end_of(absl::StatusCode::kNotFound, false, true), End::kResponded);
  EXPECT_EQ(end_of(absl::StatusCode::kOk, true, true), End::kResponded);
  for (const auto code : {absl::StatusCode::kUnavailable, absl::StatusCode::kInternal, absl::StatusCode::kUnknown,
                          absl::StatusCode::kDataLoss}) {
    EXPECT_EQ(end_of(code, true, true), End::kFailed);
  }
}

TEST_F(OutlierEjectionTest, AnEjectionMayLastForever) {
  options_.base_ejection_time = absl::InfiniteDuration();
  ASSERT_TRUE(options_.Validate().ok());
  SetWorkers(10);
  Fail(5, 3, 10);
  EXPECT_TRUE(IsAvoided(3));
  now_ += std::chrono::hours(24 * 365);
  EXPECT_TRUE(IsAvoided(3));
}

TEST_F(OutlierEjectionTest, CallsThatFailTogetherAreOneError) {
  SetWorkers(10);
  const TimePoint sent = now_;
  now_ += seconds(1);
  for (int i = 0; i < 100; ++i) {
    Respond(1, 10, 0);
    ejection_.OnEnded(now_, {.method = "/s/Get", .worker = 0, .sent = sent, .end = OutlierEjection::End::kFailed},
                      changes_);
  }
  EXPECT_THAT(Changes(), IsEmpty());
}

TEST_F(OutlierEjectionTest, AProbeThatSucceedsReturnsTheWorkerAndOneThatFailsEjectsItForLonger) {
  SetWorkers(10);
  Fail(5, 3, 10);
  for (int ejections = 2; ejections <= 12; ++ejections) {
    now_ += AvoidedFor(3) + seconds(1);
    Respond(1, 10, 3);
    Changes();
    EXPECT_FALSE(IsAvoided(3)) << "one call may try it";
    ejection_.OnChosen(now_, 3);
    EXPECT_TRUE(IsAvoided(3)) << "but not a second one";
    Call(3, OutlierEjection::End::kFailed);
    EXPECT_THAT(Changes(), ElementsAre("3 probe"));
    EXPECT_EQ(AvoidedFor(3), std::min(ejections * seconds(30), seconds(300)));
  }
  EXPECT_EQ(ejection_.ejected(), 1U);
  now_ += seconds(301);
  ejection_.OnChosen(now_, 3);
  Call(3, OutlierEjection::End::kResponded);
  EXPECT_THAT(Changes(), ElementsAre("3 returned"));
  EXPECT_FALSE(IsAvoided(3));
  EXPECT_EQ(ejection_.ejected(), 0U);
}

TEST_F(OutlierEjectionTest, AProbeWithoutAResultIsRepeated) {
  SetWorkers(10);
  Fail(5, 3, 10);
  now_ += seconds(31);
  ejection_.OnChosen(now_, 3);
  EXPECT_TRUE(IsAvoided(3));
  Call(3, OutlierEjection::End::kGivenUp);
  EXPECT_FALSE(IsAvoided(3)) << "its client gave it up at once";
  ejection_.OnChosen(now_, 3);
  now_ += seconds(10);
  EXPECT_FALSE(IsAvoided(3)) << "nothing is heard of it";
  ejection_.OnChosen(now_, 3);
  for (size_t worker = 0; worker < 10; ++worker) {
    Call(worker, OutlierEjection::End::kFailed, milliseconds(1), "/s/Broken");
  }
  EXPECT_FALSE(IsAvoided(3)) << "no worker answers this method";
  EXPECT_THAT(Changes(), ElementsAre("3 errors"));
}

// Without an alternative, calls go to ejected workers. Such a call may end after the ejection.
TEST_F(OutlierEjectionTest, ACallThatWasSentDuringTheEjectionIsNoProbe) {
  SetWorkers(10);
  Fail(5, 3, 10);
  Changes();
  Call(3, OutlierEjection::End::kResponded, seconds(31));
  Call(3, OutlierEjection::End::kResponded);
  EXPECT_THAT(Changes(), ElementsAre("3 returned")) << "by the second call alone";
}

TEST_F(OutlierEjectionTest, AFlappingWorkerIsEjectedForLongerAndIsForgivenWithTime) {
  SetWorkers(10);
  const auto flap = [this] {
    Fail(5, 3, 10);
    const seconds time = AvoidedFor(3);
    now_ += time + milliseconds(100);
    ejection_.OnChosen(now_, 3);
    Call(3, OutlierEjection::End::kResponded);
    return time;
  };
  EXPECT_EQ(flap(), seconds(30));
  EXPECT_EQ(flap(), seconds(60));
  EXPECT_EQ(flap(), seconds(90));
  now_ += seconds(11);
  Call(4, OutlierEjection::End::kResponded);
  EXPECT_EQ(flap(), seconds(90)) << "an interval without an ejection makes the next one shorter";
  now_ += seconds(1000);
  Call(3, OutlierEjection::End::kResponded);
  EXPECT_EQ(flap(), seconds(30));
}

// The first call is given up after 20 ms, such as by a hedge.
TEST_F(OutlierEjectionTest, AWorkerThatDoesNotRespondIsEjectedAfterASecond) {
  SetWorkers(64);
  Respond(2, 64, 7);
  const TimePoint began = now_;
  while (!IsAvoided(7) && now_ - began < seconds(60)) {
    Call(7, OutlierEjection::End::kGivenUp, milliseconds(20));
    Respond(1, 8, 7);
  }
  EXPECT_THAT(Changes(), ElementsAre("7 no response"));
  EXPECT_GE(now_ - began, seconds(1));
  EXPECT_LE(now_ - began, milliseconds(1030));
}

TEST_F(OutlierEjectionTest, AShortPauseDoesNotEject) {
  SetWorkers(64);
  Respond(2, 64);
  for (int i = 0; i < 100; ++i) {
    for (int j = 0; j < 30; ++j) {
      Call(7, OutlierEjection::End::kGivenUp, milliseconds(20));
      Respond(1, 8, 7);
    }
    Respond(100, 64);
  }
  EXPECT_THAT(Changes(), IsEmpty());
}

TEST_F(OutlierEjectionTest, CallsThatAreGivenUpWithinTwoMediansShowNothing) {
  SetWorkers(64);
  Respond(2, 64);
  const auto give_up = [this](nanoseconds took, const std::string& method) {
    for (int i = 0; i < 1000; ++i) {
      Call(7, OutlierEjection::End::kGivenUp, took, method);
      Call(8, OutlierEjection::End::kResponded);
    }
  };
  give_up(milliseconds(2), "/s/Get");
  give_up(milliseconds(100), "/s/Watch");
  EXPECT_THAT(Changes(), IsEmpty());
  give_up(milliseconds(2) + nanoseconds(1), "/s/Get");
  EXPECT_THAT(Changes(), ElementsAre("7 no response"));
}

// The lower median of the others is 1 ms for the slow half, and 10 ms for the quick one.
TEST_F(OutlierEjectionTest, GivenUpCallsAreComparedWithTheOtherWorkers) {
  SetWorkers(2);
  for (int i = 0; i < 100; ++i) {
    Call(0, OutlierEjection::End::kResponded, milliseconds(1));
    Call(1, OutlierEjection::End::kResponded, milliseconds(10));
  }
  now_ += seconds(1);
  for (int i = 0; i < 1000; ++i) {
    Call(0, OutlierEjection::End::kGivenUp, milliseconds(20));
    Call(1, OutlierEjection::End::kResponded, milliseconds(10));
  }
  EXPECT_THAT(Changes(), IsEmpty());
  for (int i = 0; i < 100; ++i) {
    Call(0, OutlierEjection::End::kGivenUp, milliseconds(21));
    Call(1, OutlierEjection::End::kResponded, milliseconds(10));
  }
  EXPECT_THAT(Changes(), ElementsAre("0 no response"));
}

TEST_F(OutlierEjectionTest, AShareOfErrorsEjectsAtTheEndOfTheInterval) {
  SetWorkers(10);
  for (int i = 0; i < 100; ++i) {
    Call(3, i % 5 == 4 ? OutlierEjection::End::kResponded : OutlierEjection::End::kFailed);
    Call(4, OutlierEjection::End::kResponded);
  }
  now_ += seconds(10);
  Call(4, OutlierEjection::End::kResponded);
  EXPECT_THAT(Changes(), IsEmpty()) << "80 %";
  options_.failure_percentage_threshold = 80;
  const auto interval = [this](int failures_of_others) {
    for (int i = 0; i < 100; ++i) {
      Call(3, i % 5 == 4 ? OutlierEjection::End::kResponded : OutlierEjection::End::kFailed);
      Call(4, i < failures_of_others ? OutlierEjection::End::kFailed : OutlierEjection::End::kResponded);
    }
    now_ += seconds(10);
    Call(4, OutlierEjection::End::kResponded);
  };
  interval(42);
  EXPECT_THAT(Changes(), IsEmpty()) << "the others fail, too";
  interval(30);
  EXPECT_THAT(Changes(), ElementsAre("3 percentage"));
}

TEST_F(OutlierEjectionTest, LatencyFarAboveTheMedianEjectsAtTheEndOfTheInterval) {
  options_.latency_factor = 5;
  SetWorkers(10);
  for (int i = 0; i < 60; ++i) {
    Respond(1, 10, 3);
    Call(3, OutlierEjection::End::kResponded, milliseconds(i % 2 == 0 ? 1 : 50));
    Call(4, OutlierEjection::End::kResponded, milliseconds(4));
  }
  EXPECT_THAT(Changes(), IsEmpty());
  now_ += seconds(10);
  Call(5, OutlierEjection::End::kResponded);
  EXPECT_THAT(Changes(), ElementsAre("3 latency")) << "4 is 2.5 times slower than the others";
  now_ += seconds(31);
  ejection_.OnChosen(now_, 3);
  Call(3, OutlierEjection::End::kResponded, milliseconds(50));
  EXPECT_THAT(Changes(), ElementsAre("3 probe")) << "it is as slow as before";
}

TEST_F(OutlierEjectionTest, ADifferenceOfAFewMillisecondsDoesNotEject) {
  options_.latency_factor = 5;
  SetWorkers(10);
  for (int i = 0; i < 60; ++i) {
    Respond(1, 10, 3);
    Call(3, OutlierEjection::End::kResponded, milliseconds(10));
  }
  now_ += seconds(10);
  Call(5, OutlierEjection::End::kResponded);
  EXPECT_THAT(Changes(), IsEmpty());
}

TEST_F(OutlierEjectionTest, NoMoreThanTheShareIsEjected) {
  options_.base_ejection_time = options_.max_ejection_time = absl::InfiniteDuration();
  const std::map<size_t, size_t> most = {{0, 0}, {1, 0}, {2, 1}, {3, 1}, {9, 1}, {20, 2}, {64, 6}, {1000, 100}};
  for (const auto& [workers, ejected] : most) {
    SetWorkers(0);
    SetWorkers(workers);
    for (size_t worker = 0; worker < std::min(workers, ejected + 3); ++worker) Fail(5, worker, workers);
    EXPECT_EQ(ejection_.ejected(), ejected) << workers;
    EXPECT_EQ(ejection_.MaxEjected(), ejected);
  }
}

TEST_F(OutlierEjectionTest, TheLastWorkerIsNeverEjected) {
  options_.max_ejection_percent = 100;
  SetWorkers(3);
  for (size_t worker = 0; worker < 3; ++worker) Fail(10, worker, 3);
  EXPECT_EQ(ejection_.ejected(), 2U);
}

TEST_F(OutlierEjectionTest, FewerWorkersReturnTheOnesWhoseTimeIsOverFirst) {
  SetWorkers(30);
  for (size_t worker : {5, 1, 7}) Fail(5, worker, 30);
  EXPECT_THAT(Changes(), ElementsAre("5 errors", "1 errors", "7 errors"));
  SetWorkers(10);
  EXPECT_THAT(Changes(), ElementsAre("5 returned", "1 returned"));
  SetWorkers(7);
  EXPECT_THAT(Changes(), ElementsAre("7 returned")) << "it is gone";
  EXPECT_FALSE(IsAvoided(7));
  Fail(5, 7, 10);
  EXPECT_THAT(Changes(), IsEmpty());
}

TEST_F(OutlierEjectionTest, AShareOfNothingNeverEjects) {
  options_.max_ejection_percent = 0;
  SetWorkers(10);
  Fail(100, 3, 10);
  EXPECT_THAT(Changes(), IsEmpty());
}

TEST(OutlierDetectionTest, OptionsHaveBounds) {
  EXPECT_TRUE(OutlierDetection().Validate().ok());
  const auto refused = [](const OutlierDetection& options) { return std::string(options.Validate().message()); };
  EXPECT_THAT(refused({.consecutive_errors = -1}), HasSubstr("consecutive_errors: -1 is below 0"));
  EXPECT_THAT(refused({.failure_percentage_threshold = 101}), HasSubstr("101 is outside of 0 to 100"));
  EXPECT_THAT(refused({.latency_factor = 0.5}), HasSubstr("latency_factor: 0.5 is neither above 1 nor 0"));
  EXPECT_THAT(refused({.request_volume = 0}), HasSubstr("request_volume: 0 is below 1"));
  EXPECT_THAT(refused({.interval = absl::ZeroDuration()}), HasSubstr("interval: 0 is not above 0"));
  EXPECT_THAT(refused({.max_ejection_percent = 101}), HasSubstr("max_ejection_percent: 101"));
}

// All events in any order, against the oracle.
TEST(OutlierEjectionRandomTest, FollowsTheOracle) {
  const RandomSeed seed = TakeRandomSeed();
  std::map<std::string, size_t> ejections;  // by reason
  size_t returns = 0;
  for (uint64_t run = 0; run < (seed.replays ? 1 : 500); ++run) {
    const uint64_t value = seed.value + run;
    SCOPED_TRACE(absl::StrCat("SLUICE_SEED=", value));
    std::mt19937_64 random(value);
    const auto draw = [&random](uint64_t below) { return random() % below; };
    OutlierDetection options;
    options.consecutive_errors = static_cast<int64_t>(draw(6));
    options.failure_percentage_threshold = draw(4) == 0 ? 0 : static_cast<int64_t>(30 + draw(71));
    options.latency_factor = draw(4) == 0 ? 0 : 2 + static_cast<double>(draw(5));
    options.request_volume = static_cast<int64_t>(1 + draw(20));
    options.interval = absl::Milliseconds(1 + draw(5000));
    options.base_ejection_time = absl::Milliseconds(1 + draw(5000));
    options.max_ejection_time = absl::Milliseconds(1 + draw(20000));
    options.max_ejection_percent = static_cast<int64_t>(draw(101));
    OutlierEjection ejection(options);
    testing::OutlierEjectionOracle oracle(options);
    std::set<size_t> ejected;
    std::vector<size_t> workers;
    TimePoint now{seconds(1000)};
    const auto check = [&](const OutlierEjection::Changes& changes) {
      for (const OutlierEjection::Change& change : changes) {
        if (!change.ejected.has_value()) {
          ++returns;
          EXPECT_EQ(ejected.erase(change.worker), 1U);
        } else {
          ++ejections[NameOf(*change.ejected)];
          EXPECT_EQ(ejected.insert(change.worker).second, change.ejected != EjectionReason::kProbe);
        }
      }
      ASSERT_EQ(ejected, oracle.Ejected());
      ASSERT_EQ(ejection.ejected(), ejected.size());
      ASSERT_EQ(ejection.MaxEjected(), oracle.Most());
      ASSERT_LE(ejected.size(), oracle.Most());
      for (size_t worker = 0; worker < 20; ++worker) {
        ASSERT_EQ(ejection.IsAvoided(now, worker), oracle.IsAvoided(now, worker)) << worker;
      }
    };
    const uint64_t methods = draw(4) == 0 ? 70 : 1 + draw(3);
    std::vector<uint64_t> badness(20);
    for (int step = 0; step < 400; ++step) {
      OutlierEjection::Changes changes;
      if (step == 0 || draw(100) == 0) {
        workers.clear();
        const size_t count = draw(20);
        for (size_t worker = 0; worker < 20; ++worker) {
          if (draw(20) < count) workers.push_back(worker);
        }
        ejection.SetWorkers(workers, changes);
        oracle.SetWorkers(workers);
      }
      if (draw(50) == 0) options.max_ejection_percent = static_cast<int64_t>(draw(101));
      if (step % 50 == 0) std::generate(badness.begin(), badness.end(), [&] { return draw(4) == 0 ? 9 : draw(3); });
      now += milliseconds(draw(4) == 0 ? draw(2000) : draw(20));
      const size_t worker = draw(20);
      if (draw(4) == 0) {
        ejection.OnChosen(now, worker);
        oracle.OnChosen(now, worker);
      }
      const bool bad = draw(10) < badness[worker];
      const OutlierEjection::End end =
          !bad ? (draw(10) == 0 ? OutlierEjection::End::kGivenUp : OutlierEjection::End::kResponded)
               : (worker % 3 == 0   ? OutlierEjection::End::kFailed
                  : worker % 3 == 1 ? OutlierEjection::End::kGivenUp
                                    : OutlierEjection::End::kResponded);
      const nanoseconds took = bad ? milliseconds(20 + draw(200)) : milliseconds(draw(10));
      const std::string method = absl::StrCat(draw(methods));
      const OutlierEjection::Call call{
          .method = method, .worker = worker, .sent = now - took, .end = end, .took = took};
      ejection.OnEnded(now, call, changes);
      oracle.OnEnded(now, call);
      check(changes);
      if (::testing::Test::HasFailure()) return;
    }
  }
  if (seed.replays) return;
  for (const auto& [reason, count] : ejections) EXPECT_GT(count, 50U) << reason;
  EXPECT_EQ(ejections.size(), 5U);
  EXPECT_GT(returns, 200U);
}

}  // namespace
}  // namespace sluice

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/link/outlier_ejection.h"
#include "tests/random_seed.h"

namespace sluice {
namespace {

using std::chrono::duration_cast;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using End = OutlierEjection::End;
using Generator = std::mt19937_64;

struct Reply {
  nanoseconds took{0};
  End end = End::kResponded;
};

constexpr Reply kNever{hours(1000)};
// Calls do not all end at the same time.
Reply After(milliseconds mean, Generator& random) {
  return {nanoseconds(mean) * (80 + static_cast<int64_t>(random() % 41)) / 100};
}
bool IsOneOf(int64_t part, int64_t percent, Generator& random) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(percent)) < part;
}

// Calls of one method. `reply` has the time from the beginning of the run.
struct Flow {
  std::string method;
  milliseconds every{20};
  milliseconds timeout{5000};
  std::function<Reply(size_t worker, nanoseconds time, Generator& random)> reply;
};
struct Workload {
  std::string name;
  std::vector<Flow> flows;
  bool in_turn = false;  // one call of each flow after the other; otherwise they come at random
  OutlierDetection options;
};

struct Event {
  seconds time{0};
  size_t worker = 0;
};
struct Outcome {
  std::vector<Event> ejected;
  std::vector<Event> returned;
  size_t still_ejected = 0;
};

// Clients and workers in virtual time. Calls take the workers in turn, as in the proxy.
class WorkloadRun {
 public:
  WorkloadRun(const Workload& workload, size_t workers, seconds time, uint64_t seed)
      : workload_(workload), workers_(workers), time_(time), random_(seed), ejection_(workload.options) {}

  Outcome Simulate() {
    std::vector<size_t> workers(workers_);
    for (size_t i = 0; i < workers_; ++i) workers[i] = i;
    OutlierEjection::Changes changes;
    ejection_.SetWorkers(workers, changes);
    for (size_t i = 0; i < workload_.flows.size(); ++i) {
      const Flow& flow = workload_.flows[i];
      Arrive(flow, workload_.in_turn ? flow.every * i / workload_.flows.size() : nanoseconds(0));
    }
    while (!events_.empty() && events_.begin()->first < time_) {
      const auto event = events_.extract(events_.begin());
      now_ = event.key();
      event.mapped()();
    }
    outcome_.still_ejected = ejection_.ejected();
    return std::move(outcome_);
  }

 private:
  TimePoint At(nanoseconds time) const { return TimePoint(seconds(1000)) + time; }

  void Arrive(const Flow& flow, nanoseconds time) {
    events_.emplace(time, [this, &flow] {
      Send(flow);
      const double share = workload_.in_turn ? 1 : std::exponential_distribution<double>()(random_);
      Arrive(flow,
             now_ + nanoseconds(static_cast<int64_t>(share * static_cast<double>(nanoseconds(flow.every).count()))));
    });
  }
  size_t Choose() {
    size_t worker = next_ % workers_;
    for (size_t i = 0; i < workers_ && ejection_.IsAvoided(At(now_), worker); ++i) worker = (worker + 1) % workers_;
    if (ejection_.IsAvoided(At(now_), worker)) worker = next_ % workers_;
    next_ = worker + 1;
    ejection_.OnChosen(At(now_), worker);
    return worker;
  }
  void Send(const Flow& flow) {
    const size_t worker = Choose();
    Reply reply = flow.reply(worker, now_, random_);
    if (reply.took > flow.timeout) reply = {flow.timeout, End::kGivenUp};
    const TimePoint sent = At(now_);
    events_.emplace(now_ + reply.took, [this, &flow, worker, reply, sent] {
      OutlierEjection::Changes changes;
      ejection_.OnEnded(At(now_),
                        {.method = flow.method, .worker = worker, .sent = sent, .end = reply.end, .took = reply.took},
                        changes);
      for (const OutlierEjection::Change& change : changes) {
        auto& list = change.ejected.has_value() ? outcome_.ejected : outcome_.returned;
        list.push_back({duration_cast<seconds>(now_), change.worker});
      }
    });
  }

  const Workload& workload_;
  const size_t workers_;
  const seconds time_;
  Generator random_;
  OutlierEjection ejection_;
  std::multimap<nanoseconds, std::function<void()>> events_;
  nanoseconds now_{0};
  size_t next_ = 0;
  Outcome outcome_;
};

auto Quick() {
  return [](size_t, nanoseconds, Generator& random) { return After(milliseconds(2), random); };
}
auto Slow() {
  return [](size_t, nanoseconds, Generator& random) { return After(milliseconds(300), random); };
}

std::vector<Workload> HealthyWorkloads() {
  const Flow quick{"/s/Quick", milliseconds(20), seconds(5), Quick()};
  const Flow slow{"/s/Slow", milliseconds(20), seconds(5), Slow()};
  const Flow second_quick{"/s/SecondQuick", milliseconds(20), seconds(5), Quick()};
  const Flow third_quick{"/s/ThirdQuick", milliseconds(20), seconds(5), Quick()};
  return {
      {"a quick and a slow method in turn", {quick, slow}, true},
      {"three quick methods and a slow one in turn", {quick, second_quick, third_quick, slow}, true},
      {"a slow method that all clients give up",
       {quick, {"/s/Slow", milliseconds(20), milliseconds(50), Slow()}},
       true},
      {"watches without a message beside unary calls",
       {quick, {"/s/Watch", milliseconds(500), seconds(8), [](size_t, nanoseconds, Generator&) { return kNever; }}}},
      {"long polls, a third of them for quiet topics",
       {{"/s/Poll", milliseconds(20), seconds(4),
         [](size_t, nanoseconds, Generator& random) {
           return IsOneOf(1, 3, random) ? kNever : After(milliseconds(100), random);
         }}}},
      {"one tenant's heavy calls",
       {{"/s/Query", milliseconds(10), milliseconds(500),
         [](size_t, nanoseconds, Generator& random) {
           return After(milliseconds(IsOneOf(3, 10, random) ? 2000 : 5), random);
         }}}},
      {"a worker with a cold cache",
       {{"/s/Get", milliseconds(5), seconds(5),
         [](size_t worker, nanoseconds time, Generator& random) {
           return After(milliseconds(worker == 1 && time < seconds(30) ? 200 : 20), random);
         }}}},
      {"health checks beside queries",
       {{"/grpc.health.v1.Health/Check", milliseconds(20), seconds(1), Quick()}, slow},
       true},
      {"a method that fails everywhere",
       {{"/s/Broken", milliseconds(10), seconds(5),
         [](size_t, nanoseconds, Generator& random) {
           return Reply{After(milliseconds(2), random).took, End::kFailed};
         }},
        {"/s/Quick", milliseconds(100), seconds(5), Quick()}}},
      {"an outage of all workers",
       {{"/s/Get", milliseconds(10), seconds(5),
         [](size_t, nanoseconds time, Generator& random) {
           const bool out = time > seconds(20) && time < seconds(40);
           return Reply{After(milliseconds(2), random).took, out ? End::kFailed : End::kResponded};
         }}}},
      {"requests of one tenant that fail at each worker",
       {{"/s/Query", milliseconds(10), seconds(5),
         [](size_t, nanoseconds, Generator& random) {
           return Reply{After(milliseconds(5), random).took, IsOneOf(4, 10, random) ? End::kFailed : End::kResponded};
         }}}},
      {"a database that does not respond for 15 s",
       {{"/s/Get", milliseconds(10), milliseconds(400),
         [](size_t, nanoseconds time, Generator& random) {
           return time > seconds(20) && time < seconds(35) ? kNever : After(milliseconds(5), random);
         }}}},
  };
}

TEST(OutlierWorkloadsTest, HealthyWorkersAreNotEjected) {
  const RandomSeed seed = TakeRandomSeed();
  SCOPED_TRACE(absl::StrCat("SLUICE_SEED=", seed.value));
  const std::vector<Workload> workloads = HealthyWorkloads();
  ASSERT_EQ(workloads.size(), 12U);
  for (const Workload& workload : workloads) {
    for (size_t workers : {2, 3, 4, 16}) {
      const Outcome outcome = WorkloadRun(workload, workers, seconds(100), seed.value).Simulate();
      EXPECT_EQ(outcome.ejected.size(), 0U) << workload.name << ", " << workers << " workers";
    }
  }
}

// Worker 1 is bad in this time.
constexpr seconds kBadFrom{20};
constexpr seconds kBadUntil{80};

bool IsBad(size_t worker, nanoseconds time) {
  return worker == 1 && time >= kBadFrom && time < kBadUntil;
}

Flow WithBad(Flow flow, std::function<Reply(Reply good, nanoseconds time)> bad) {
  flow.reply = [good = std::move(flow.reply), bad = std::move(bad)](size_t worker, nanoseconds time,
                                                                    Generator& random) {
    const Reply reply = good(worker, time, random);
    return IsBad(worker, time) ? bad(reply, time) : reply;
  };
  return flow;
}

struct BadWorker {
  Workload workload;
  size_t workers = 0;
  seconds ejected_within{0};
};

std::vector<BadWorker> BadWorkers() {
  const Flow get{"/s/Get", milliseconds(20), milliseconds(400), Quick()};
  Flow often = get;
  often.every = milliseconds(2);
  const Flow check{"/grpc.health.v1.Health/Check", milliseconds(100), seconds(1), Quick()};
  const auto fails = [](Reply good, nanoseconds) { return Reply{good.took, End::kFailed}; };
  const auto hangs = [](Reply, nanoseconds) { return kNever; };
  const auto is_slow = [](Reply good, nanoseconds) { return Reply{50 * good.took}; };
  const auto flaps = [](Reply good, nanoseconds time) {
    return Reply{good.took, time % seconds(4) < seconds(2) ? End::kFailed : End::kResponded};
  };
  OutlierDetection by_latency;
  by_latency.latency_factor = 5;
  return {
      {{"errors, of two", {WithBad(get, fails)}}, 2, seconds(2)},
      {{"hangs, of two", {WithBad(get, hangs)}}, 2, seconds(4)},
      {{"errors, of three", {WithBad(get, fails)}}, 3, seconds(2)},
      {{"hangs behind good health checks, of four", {WithBad(get, hangs), check}}, 4, seconds(4)},
      {{"errors of one of two methods, of four",
        {WithBad(get, fails), {"/s/List", milliseconds(20), seconds(1), Quick()}}},
       4,
       seconds(3)},
      {{"hangs, of 64", {WithBad(often, hangs)}}, 64, seconds(5)},
      {{"flaps, of four", {WithBad(get, flaps)}}, 4, seconds(5)},
      {{"slow, of two, with latency", {WithBad(get, is_slow)}, false, by_latency}, 2, seconds(21)},
  };
}

TEST(OutlierWorkloadsTest, ABadWorkerIsEjectedAndReturnsInTime) {
  const RandomSeed seed = TakeRandomSeed();
  SCOPED_TRACE(absl::StrCat("SLUICE_SEED=", seed.value));
  const std::vector<BadWorker> cases = BadWorkers();
  ASSERT_EQ(cases.size(), 8U);
  for (const BadWorker& bad : cases) {
    SCOPED_TRACE(bad.workload.name);
    const Outcome outcome = WorkloadRun(bad.workload, bad.workers, seconds(240), seed.value).Simulate();
    EXPECT_THAT(outcome.ejected, ::testing::Each(::testing::Field(&Event::worker, 1U)));
    if (outcome.ejected.empty()) {
      ADD_FAILURE() << "it is not ejected";
      continue;
    }
    EXPECT_GE(outcome.ejected.front().time, kBadFrom);
    EXPECT_LE(outcome.ejected.front().time, kBadFrom + bad.ejected_within);
    // An ejection that begins before its end lasts for 90 s at most.
    EXPECT_EQ(outcome.still_ejected, 0U);
    for (const Event& event : outcome.returned) EXPECT_LE(event.time, kBadUntil + seconds(95));
  }
}

}  // namespace
}  // namespace sluice

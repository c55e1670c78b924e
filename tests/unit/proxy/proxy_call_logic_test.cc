#include "lib/proxy/proxy_call_logic.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/random_seed.h"
#include "tests/unit/proxy/proxy_call_logic_oracle.h"

namespace sluice {
namespace {

using Action = ProxyCallLogic::Action;
using Actions = ProxyCallLogic::Actions;
using Kind = Action::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::ProxyCallLogicOracle;

const StreamEnd kWholeEnd{StreamEnd::Kind::kComplete, Http2Error::kNoError, false};
const StreamEnd kLostEnd{StreamEnd::Kind::kLost, Http2Error::kNoError, false};

StreamEnd Reset(Http2Error error) {
  return {StreamEnd::Kind::kReset, error, false};
}

class ProxyCallLogicTest : public ::testing::Test {
 protected:
  // The kinds of the actions since the last call.
  std::vector<Kind> Take() {
    std::vector<Kind> kinds;
    for (const Action& action : actions_) kinds.push_back(action.kind);
    last_ = actions_.empty() ? Action{Kind::kRoute} : actions_.back();
    actions_.clear();
    return kinds;
  }
  // A call whose whole request has gone to a worker.
  void StartWhole() {
    logic_.OnRequestHeaders(true, absl::OkStatus(), actions_);
    logic_.OnTarget(absl::OkStatus(), actions_);
    actions_.clear();
  }

  ProxyCallLogic logic_;
  Actions actions_;
  Action last_{Kind::kRoute};  // of Take
};

TEST_F(ProxyCallLogicTest, ACallFindsItsTargetAndStarts) {
  logic_.OnRequestHeaders(false, absl::OkStatus(), actions_);
  EXPECT_THAT(Take(), ElementsAre(Kind::kRoute));
  logic_.OnTarget(absl::OkStatus(), actions_);
  EXPECT_THAT(Take(), ElementsAre(Kind::kStart));
  EXPECT_TRUE(logic_.has_stream());
}

TEST_F(ProxyCallLogicTest, HeadersThatAreNotGrpcAreRefused) {
  logic_.OnRequestHeaders(false, absl::InvalidArgumentError("no path"), actions_);
  EXPECT_THAT(Take(), ElementsAre(Kind::kRefuse, Kind::kForgetRequest, Kind::kStopRequest));
  EXPECT_EQ(logic_.code(), absl::StatusCode::kInvalidArgument);
  logic_.OnRequestHeaders(true, absl::OkStatus(), actions_);
  EXPECT_THAT(Take(), IsEmpty()) << "the response has ended";
}

TEST_F(ProxyCallLogicTest, TrailersOfARequestEndTheCall) {
  logic_.OnRequestHeaders(false, absl::OkStatus(), actions_);
  logic_.OnTarget(absl::OkStatus(), actions_);
  Take();
  logic_.OnRequestHeaders(true, absl::OkStatus(), actions_);
  EXPECT_THAT(Take(), ElementsAre(Kind::kRespond, Kind::kForgetRequest, Kind::kCancelWorker));
  EXPECT_EQ(logic_.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ProxyCallLogicTest, RequestBytesWaitUntilTheStreamIsOpen) {
  logic_.OnRequestHeaders(false, absl::OkStatus(), actions_);
  logic_.OnTarget(absl::OkStatus(), actions_);
  Take();
  logic_.OnRequestData(false, false, 100, actions_);
  EXPECT_THAT(Take(), IsEmpty());
  logic_.OnRequestData(false, true, 200, actions_);
  EXPECT_THAT(Take(), ElementsAre(Kind::kSend));
  logic_.OnSent(100u, actions_);
  EXPECT_THAT(Take(), IsEmpty()) << "bytes wait, so the client gets no further grant";
  logic_.OnRequestWritable(actions_);
  EXPECT_THAT(Take(), ElementsAre(Kind::kSend));
  logic_.OnSent(0u, actions_);
  EXPECT_THAT(Take(), ElementsAre(Kind::kGrantRequest));
}

TEST_F(ProxyCallLogicTest, ALargeRequestIsNotKept) {
  logic_.OnRequestHeaders(false, absl::OkStatus(), actions_);
  logic_.OnTarget(absl::OkStatus(), actions_);
  Take();
  logic_.OnRequestData(false, true, ProxyCallLogic::kMaxKeptBytes, actions_);
  EXPECT_THAT(Take(), ElementsAre(Kind::kSend));
  logic_.OnRequestData(true, true, ProxyCallLogic::kMaxKeptBytes + 1, actions_);
  EXPECT_THAT(Take(), ElementsAre(Kind::kForgetRequest, Kind::kSend));
  EXPECT_FALSE(logic_.may_start_again());
}

TEST_F(ProxyCallLogicTest, TheStatusOfTheWorkerEndsTheCall) {
  StartWhole();
  logic_.OnResponseHeaders(false, std::nullopt, actions_);
  EXPECT_THAT(Take(), ElementsAre(Kind::kForgetRequest));
  logic_.OnResponseHeaders(true, absl::StatusCode::kOk, actions_);
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_TRUE(logic_.OnStreamOver(&kWholeEnd, absl::OkStatus(), actions_));
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_TRUE(logic_.method_exists());
}

TEST_F(ProxyCallLogicTest, AResponseWithoutTrailersIsUnknown) {
  StartWhole();
  logic_.OnResponseHeaders(false, std::nullopt, actions_);
  logic_.OnResponseEnd(actions_);
  EXPECT_EQ(logic_.code(), absl::StatusCode::kUnknown);
}

TEST_F(ProxyCallLogicTest, AnUnreachedWorkerIsReplacedWhileTheRequestIsKept) {
  StartWhole();
  logic_.OnUnreached(absl::UnavailableError("refused"), true, actions_);
  EXPECT_THAT(Take(), ElementsAre(Kind::kStart));
  logic_.OnUnreached(absl::UnavailableError("refused"), false, actions_);
  EXPECT_THAT(Take(), ElementsAre(Kind::kRespond, Kind::kForgetRequest));
  EXPECT_EQ(logic_.code(), absl::StatusCode::kUnavailable);
}

TEST_F(ProxyCallLogicTest, AResetOfTheWorkerResetsTheClient) {
  StartWhole();
  const StreamEnd reset = Reset(Http2Error::kEnhanceYourCalm);
  EXPECT_FALSE(logic_.OnStreamOver(&reset, absl::OkStatus(), actions_));
  EXPECT_THAT(Take(), ElementsAre(Kind::kForgetRequest, Kind::kResetClient));
  EXPECT_EQ(last_.error, Http2Error::kEnhanceYourCalm);
  EXPECT_EQ(logic_.code(), absl::StatusCode::kUnavailable);
}

TEST_F(ProxyCallLogicTest, ALostConnectionIsUnavailable) {
  StartWhole();
  logic_.OnResponseHeaders(false, std::nullopt, actions_);
  Take();
  logic_.OnStreamOver(&kLostEnd, absl::OkStatus(), actions_);
  EXPECT_THAT(Take(), ElementsAre(Kind::kRespond));
  EXPECT_TRUE(last_.begun);
}

TEST_F(ProxyCallLogicTest, AClientThatGoesCancelsItsWorker) {
  for (const auto& [code, passed_on] : {std::pair(Http2Error::kInternalError, Http2Error::kInternalError),
                                        std::pair(Http2Error::kEnhanceYourCalm, Http2Error::kEnhanceYourCalm),
                                        std::pair(Http2Error::kCancel, Http2Error::kCancel),
                                        std::pair(Http2Error::kProtocolError, Http2Error::kCancel)}) {
    logic_ = ProxyCallLogic();
    StartWhole();
    logic_.OnClosed(Reset(code), absl::DeadlineExceededError("late"), actions_);
    EXPECT_THAT(Take(), ElementsAre(Kind::kForgetRequest, Kind::kCancelWorker));
    EXPECT_EQ(last_.error, passed_on);
    EXPECT_EQ(last_.status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(logic_.code(), absl::StatusCode::kDeadlineExceeded);
    logic_.Fail(absl::UnavailableError("too late"), actions_);
    logic_.FailStuck(absl::UnavailableError("too late"), actions_);
    EXPECT_THAT(Take(), IsEmpty());
  }
}

TEST_F(ProxyCallLogicTest, AStuckClientIsResetThoughItsResponseIsComplete) {
  StartWhole();
  logic_.OnResponseHeaders(true, absl::StatusCode::kOk, actions_);
  logic_.OnStreamOver(&kWholeEnd, absl::OkStatus(), actions_);
  Take();
  logic_.FailStuck(absl::ResourceExhaustedError("does not read"), actions_);
  EXPECT_THAT(Take(), ElementsAre(Kind::kResetClient));
  EXPECT_EQ(logic_.code(), absl::StatusCode::kOk);
}

// One call with events from a seed: all that a client, a worker and the limits may report, in any valid order.
class RandomCall {
 public:
  explicit RandomCall(uint64_t seed) : random_(seed) {}

  void Run() {
    for (int step = 0; step < 200 && !(oracle_.closed() && !oracle_.live()); ++step) {
      Step();
      oracle_.CheckState(logic_);
      if (::testing::Test::HasFailure()) return;
    }
    if (!oracle_.closed()) Close();
    oracle_.CheckState(logic_);
    EXPECT_FALSE(oracle_.live()) << "the client has gone, and its worker still sends";
  }
  const std::string& events() const { return events_; }

 private:
  size_t Draw(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }
  bool OneIn(size_t n) { return Draw(n) == 0; }
  void Note(absl::string_view event) { absl::StrAppend(&events_, " ", std::string(event)); }

  void Step() {
    switch (Draw(12)) {
      case 0:
      case 1:
        if (!oracle_.closed() && (!oracle_.headers() || (!oracle_.whole() && OneIn(20)))) Headers();
        return;
      case 2:
      case 3:
        if (!oracle_.closed() && oracle_.headers() && !oracle_.whole()) Data();
        return;
      case 4:
        if (sought_) Target();
        return;
      case 5:
        if (oracle_.live()) Open();
        return;
      case 6:
      case 7:
        if (oracle_.live() && open_ && oracle_.wanted()) RespondHeaders();
        return;
      case 8:
        if (oracle_.live() && open_ && oracle_.begun() && oracle_.wanted() && OneIn(4)) ResponseEnd();
        return;
      case 9:
        // A stream that the worker never processed waits for a worker again.
        if (open_ && !oracle_.begun() && OneIn(3)) open_ = false;
        if (oracle_.live() && OneIn(3)) StreamOver();
        return;
      case 10:
        if (OneIn(10)) Limit();
        return;
      default:
        if (!oracle_.closed() && OneIn(10)) Close();
    }
  }

  void Headers() {
    const bool end = OneIn(2);
    const absl::Status parsed = OneIn(10) ? absl::InvalidArgumentError("no path") : absl::OkStatus();
    Note(end ? "headers-end" : "headers");
    oracle_.Headers(end);
    logic_.OnRequestHeaders(end, parsed, actions_);
    Apply();
  }
  void Data() {
    const bool end = OneIn(3);
    Note(end ? "data-end" : "data");
    oracle_.Data(end);
    logic_.OnRequestData(end, oracle_.live() && open_, Draw(2 * ProxyCallLogic::kMaxKeptBytes), actions_);
    Apply();
  }
  void Target() {
    sought_ = false;
    Note("target");
    logic_.OnTarget(OneIn(8) ? absl::PermissionDeniedError("not permitted") : absl::OkStatus(), actions_);
    Apply();
  }
  void Open() {
    open_ = true;
    Note("open");
    logic_.OnRequestWritable(actions_);
    Apply();
  }
  void RespondHeaders() {
    const bool end = OneIn(2);
    Note(end ? "trailers" : "response");
    oracle_.Forwarded(end);
    std::optional<absl::StatusCode> code;
    if (!OneIn(4)) code = OneIn(2) ? absl::StatusCode::kOk : absl::StatusCode::kUnimplemented;
    logic_.OnResponseHeaders(end, code, actions_);
    Apply();
  }
  void ResponseEnd() {
    Note("response-end");
    oracle_.Forwarded(true);
    logic_.OnResponseEnd(actions_);
    Apply();
  }
  void StreamOver() {
    oracle_.StreamOver();
    if (!std::exchange(open_, false)) {
      Note("unreached");
      logic_.OnUnreached(absl::UnavailableError("refused"), OneIn(2), actions_);
      return Apply();
    }
    Note("over");
    const StreamEnd ends[] = {kWholeEnd,
                              kLostEnd,
                              Reset(Http2Error::kCancel),
                              {StreamEnd::Kind::kUnhandled, Http2Error::kRefusedStream, false}};
    const StreamEnd& end = ends[Draw(4)];
    const absl::Status why = OneIn(4) ? absl::DeadlineExceededError("late") : absl::OkStatus();
    const bool ok = logic_.OnStreamOver(OneIn(6) && !why.ok() ? nullptr : &end, why, actions_);
    EXPECT_FALSE(ok && logic_.code() != absl::StatusCode::kOk);
    Apply();
  }
  void Limit() {
    Note("limit");
    const absl::Status why = absl::ResourceExhaustedError("too much is held");
    if (oracle_.live() && open_ && OneIn(2)) {
      logic_.ForgetRequest(actions_);
    } else if (OneIn(2)) {
      logic_.Fail(why, actions_);
    } else {
      logic_.FailStuck(why, actions_);
    }
    Apply();
  }
  void Close() {
    Note("close");
    oracle_.Closed();
    logic_.OnClosed(OneIn(2) ? Reset(Http2Error::kCancel) : kWholeEnd, absl::CancelledError("gone"), actions_);
    Apply();
  }

  // As ProxiedCall does: what an action causes follows.
  void Apply() {
    for (size_t next = 0; next < actions_.size(); ++next) {
      const Action action = actions_[next];
      oracle_.Check(action);
      if (action.kind == Kind::kRoute) sought_ = true;
      if (action.kind == Kind::kCancelWorker) open_ = false;
      if (action.kind == Kind::kSend && OneIn(2)) {
        logic_.OnSent(OneIn(20) ? absl::StatusOr<size_t>(absl::ResourceExhaustedError("too much waits"))
                                : absl::StatusOr<size_t>(Draw(2)),
                      actions_);
      }
      if (action.kind == Kind::kStart && OneIn(5)) {
        Note("not-started");
        oracle_.NotStarted();
        logic_.OnNotStarted(absl::ResourceExhaustedError("the queue is full"), actions_);
      }
    }
    actions_.clear();
  }

  std::mt19937_64 random_;
  ProxyCallLogic logic_;
  Actions actions_;
  ProxyCallLogicOracle oracle_;
  bool sought_ = false;
  bool open_ = false;
  std::string events_;
};

TEST(ProxyCallLogicRandomTest, FollowsTheRulesInAnyOrderOfEvents) {
  constexpr uint64_t kCalls = 20'000;
  const RandomSeed seed = TakeRandomSeed();
  const uint64_t calls = seed.replays ? 1 : kCalls;
  for (uint64_t call = 0; call < calls; ++call) {
    RandomCall random(seed.value + call);
    random.Run();
    ASSERT_FALSE(HasFailure()) << "SLUICE_SEED=" << seed.value + call << ":" << random.events();
  }
}

}  // namespace
}  // namespace sluice

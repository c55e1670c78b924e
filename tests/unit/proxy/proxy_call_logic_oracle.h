#pragma once

#include <cstddef>

#include <gtest/gtest.h>

#include "lib/proxy/proxy_call_logic.h"

namespace sluice::testing {

// Checks each action of a ProxyCallLogic against a bookkeeping of its own, by the rules of proxy_call_logic.h:
//
// 1. The target is sought once. A stream starts only while the client wants a response, no other stream is open, and
//    the whole request is kept.
// 2. The client's response ends once: by the worker, by kRefuse or by kRespond. Nothing but a reset follows.
// 3. The request is forgotten once, before anything of a response is forwarded, and no stream starts afterwards.
// 4. A stream is cancelled if, and only if, the response ends without its worker, or the client goes while it is open.
// 5. Nothing is done for a client that is gone.
//
// One for each call of a test.
class ProxyCallLogicOracle {
 public:
  using Action = ProxyCallLogic::Action;

  // Before the event.
  void Headers(bool end_stream) { headers_ = true, whole_ = whole_ || end_stream; }
  void Data(bool end_stream) { whole_ = whole_ || end_stream; }
  void Closed() { closed_ = true; }
  void NotStarted() { live_ = false; }
  void StreamOver() { live_ = false; }
  // The worker's headers or trailers were forwarded.
  void Forwarded(bool end_stream) {
    EXPECT_FALSE(ended_ || closed_);
    begun_ = true;
    ended_by_worker_ = ended_ = end_stream;
  }

  void Check(const Action& action) {
    using Kind = Action::Kind;
    switch (action.kind) {
      case Kind::kRoute:
        EXPECT_TRUE(headers_ && wanted() && !routed_);
        routed_ = true;
        return;
      case Kind::kStart:
        EXPECT_TRUE(routed_ && wanted() && !live_ && !forgotten_ && !begun_);
        live_ = true;
        return;
      case Kind::kSend:
        EXPECT_TRUE(live_);
        return;
      case Kind::kGrantRequest:
        EXPECT_FALSE(closed_);
        return;
      case Kind::kForgetRequest:
        EXPECT_FALSE(forgotten_);
        forgotten_ = true;
        return;
      case Kind::kRefuse:
      case Kind::kRespond:
        EXPECT_TRUE(wanted());
        EXPECT_FALSE(action.status.ok());
        EXPECT_EQ(action.begun, begun_);
        EXPECT_FALSE(action.kind == Kind::kRefuse && routed_);
        ended_ = true;
        return;
      case Kind::kStopRequest:
        EXPECT_TRUE(!closed_ && !whole_ && !stopped_);
        stopped_ = true;
        return;
      case Kind::kResetClient:
        EXPECT_FALSE(closed_);
        ended_ = true;
        return;
      case Kind::kCancelWorker:
        EXPECT_TRUE(live_);
        EXPECT_FALSE(action.status.ok());
        live_ = false;
        return;
    }
  }

  // After the actions of an event.
  void CheckState(const ProxyCallLogic& logic) const {
    EXPECT_EQ(logic.has_stream(), live_);
    EXPECT_EQ(logic.wants_response(), wanted());
    EXPECT_EQ(logic.keeps_request(), !forgotten_);
    EXPECT_EQ(logic.code().has_value(), ended_ || closed_);
    EXPECT_EQ(logic.response() == ProxyCallLogic::Response::kGone, closed_);
    EXPECT_TRUE(!begun_ || forgotten_);
    EXPECT_TRUE(!(ended_ || closed_) || forgotten_);
    // A worker sends for a client only. The stream whose worker ended the response may not have closed yet.
    EXPECT_TRUE(!live_ || wanted() || (ended_by_worker_ && !closed_));
    EXPECT_TRUE(!ended_ || whole_ || stopped_ || closed_ || !headers_);
  }

  bool wanted() const { return !ended_ && !closed_; }
  bool live() const { return live_; }
  bool whole() const { return whole_; }
  bool closed() const { return closed_; }
  bool begun() const { return begun_; }
  bool headers() const { return headers_; }

 private:
  bool headers_ = false;
  bool whole_ = false;
  bool routed_ = false;
  bool live_ = false;  // a stream to a worker
  bool forgotten_ = false;
  bool begun_ = false;
  bool ended_ = false;
  bool ended_by_worker_ = false;
  bool stopped_ = false;
  bool closed_ = false;
};

}  // namespace sluice::testing

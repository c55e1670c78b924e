#include "lib/link/response_flow.h"

#include <algorithm>
#include <string>

#include "gtest/gtest.h"
#include "lib/grpc_wire/request.h"

namespace sluice {
namespace {

// The window that the client has opened, as announced to the worker.
class Opened {
 public:
  explicit Opened(bool many_messages) : flow_(many_messages) {}

  // Grants as LinkSchedule does: bytes that arrived without a grant are granted with the next part.
  void Grant(int64_t bytes) {
    flow_.Grant(bytes + ungranted_bytes_);
    ungranted_bytes_ = 0;
    open_bytes_ += flow_.TakeWidening();
    granted_bytes_ = bytes;
  }
  void ReceivePrefix(size_t message_bytes) {
    const std::string message = FrameMessage(std::string(message_bytes, 'x'));
    flow_.Receive(message.substr(0, 5), 0);
    open_bytes_ -= 5;
  }
  // Receives all bytes of a message that the window allows.
  void ReceiveAll() {
    flow_.Receive(std::string(static_cast<size_t>(open_bytes_), 'x'), 0);
    ungranted_bytes_ = open_bytes_ - granted_bytes_;
    open_bytes_ = granted_bytes_ = 0;
  }
  void EndMessage() { open_bytes_ += flow_.TakeWidening(); }
  int64_t open_bytes() const { return open_bytes_; }

 private:
  ResponseFlow flow_;
  int64_t open_bytes_ = ResponseFlow::kFirstBytes;
  int64_t granted_bytes_ = 0;    // that have not arrived
  int64_t ungranted_bytes_ = 0;  // that arrived and must still be granted
};

// Each time a worker uses up its whole window, it sends some bytes in the room next to the grants.
TEST(ResponseFlowTest, PartsThatAreUsedUpDoNotWidenTheRoomBesideThem) {
  for (const bool many_messages : {false, true}) {
    Opened opened(many_messages);
    opened.ReceivePrefix(20'000'000);
    const int64_t room_bytes = many_messages ? 6 : 1;
    for (int part = 0; part < 10'000; ++part) {
      opened.Grant(1000);
      ASSERT_EQ(opened.open_bytes(), 1000 + room_bytes) << "part " << part;
      opened.ReceiveAll();
    }
  }
}

TEST(ResponseFlowTest, MessagesOfAByteDoNotWidenTheRoom) {
  Opened opened(true);
  for (int message = 0; message < 10'000; ++message) {
    opened.ReceivePrefix(1);
    opened.ReceiveAll();
    opened.EndMessage();
    ASSERT_EQ(opened.open_bytes(), 6) << "message " << message;
    opened.Grant(0);
    ASSERT_EQ(opened.open_bytes(), 6) << "message " << message;
  }
}

TEST(ResponseFlowTest, AnAnswerOfAByteLeavesAByteForTheTrailers) {
  Opened opened(false);
  opened.ReceivePrefix(1);
  opened.ReceiveAll();
  opened.EndMessage();
  EXPECT_EQ(opened.open_bytes(), 1);
}

TEST(ResponseFlowTest, PaddingIsWidenedWithTheRest) {
  ResponseFlow flow(false);
  flow.Receive("", 2);
  EXPECT_EQ(flow.TakeWidening(), 2);
  EXPECT_EQ(flow.TakeWidening(), 0);
}

// --- Requested bytes.

class AskedBytesTest : public ::testing::Test {
 protected:
  AskedBytesTest() { Receive(5); }
  void Receive(size_t bytes) {
    flow_.Receive(response_.substr(received_, bytes), 0);
    received_ += bytes;
  }

  const std::string response_ = FrameMessage(std::string(1000, 'x'));
  size_t received_ = 0;
  ResponseFlow flow_{true};
};

TEST_F(AskedBytesTest, AreAtMostTheRestOfTheMessage) {
  EXPECT_EQ(flow_.pending_message_bytes(), 1000);
  EXPECT_TRUE(flow_.Ask(5000));
  EXPECT_EQ(flow_.asked_bytes(), 1000);
  EXPECT_FALSE(flow_.Ask(5000));
  Receive(400);
  EXPECT_EQ(flow_.asked_bytes(), 600);
  EXPECT_EQ(flow_.pending_message_bytes(), 600);
}

TEST_F(AskedBytesTest, GrowWhenHalfOfTheWantedOnesHaveArrived) {
  EXPECT_TRUE(flow_.Ask(200));
  Receive(99);
  EXPECT_FALSE(flow_.Ask(200));
  EXPECT_EQ(flow_.asked_bytes(), 101);
  Receive(1);
  EXPECT_TRUE(flow_.Ask(200));
  EXPECT_EQ(flow_.asked_bytes(), 200);
}

TEST_F(AskedBytesTest, GrowAtOnceToTheEndOfTheMessage) {
  EXPECT_TRUE(flow_.Ask(800));
  EXPECT_FALSE(flow_.Ask(900));
  EXPECT_TRUE(flow_.Ask(1000));
  EXPECT_EQ(flow_.asked_bytes(), 1000);
}

TEST_F(AskedBytesTest, BeginAgainWithTheNextMessage) {
  EXPECT_TRUE(flow_.Ask(1000));
  EXPECT_EQ(flow_.messages(), 1);
  flow_.Receive(response_.substr(5) + FrameMessage("abc").substr(0, 5), 0);
  EXPECT_EQ(flow_.messages(), 2);
  EXPECT_EQ(flow_.asked_bytes(), 0);
  EXPECT_EQ(flow_.pending_message_bytes(), 3);
  EXPECT_FALSE(flow_.Ask(0));
}

// A grant without a bound opens the window only for the unasked bytes, and then for the requested ones.
TEST(ResponseFlowTest, AGrantWithoutABoundOpensWhatIsAskedFor) {
  constexpr int64_t kUnasked = 1000;
  for (const bool many_messages : {false, true}) {
    ResponseFlow flow(many_messages, kUnasked);
    flow.Grant(kMaxResponseBytes);
    EXPECT_EQ(flow.TakeWidening(), kUnasked);
    const std::string message = FrameMessage(std::string(5000, 'x'));
    flow.Receive(message.substr(0, 805), 0);
    EXPECT_EQ(flow.granted_bytes(), 200);
    EXPECT_TRUE(flow.Ask(4200));
    flow.OpenAhead();
    EXPECT_EQ(flow.granted_bytes(), many_messages ? 5200 : 4200);
    flow.Grant(kMaxResponseBytes);
    EXPECT_EQ(flow.granted_bytes(), many_messages ? 5200 : 4200);
  }
}

TEST(ResponseFlowTest, AGrantWithoutABoundOpensAllToAUserWithoutABound) {
  ResponseFlow flow(true);
  flow.Grant(kMaxResponseBytes);
  EXPECT_FALSE(flow.comes_unasked());
  EXPECT_EQ(flow.granted_bytes(), kMaxResponseBytes);
}

// Such as a proxied stream of several messages, which are larger than one grant together.
TEST(ResponseFlowTest, AGrantWithoutABoundIsNotUsedUpByManyMessages) {
  ResponseFlow flow(/*many_messages=*/true);
  flow.Grant(kMaxResponseBytes);
  int64_t open_bytes = ResponseFlow::kFirstBytes + flow.TakeWidening();
  const std::string prefix("\0\x7f\xff\xff\xff", 5);  // of 2 GiB
  const std::string data(64 << 20, 'x');
  for (int message = 0; message < 4; ++message) {
    flow.Receive(prefix, 0);
    open_bytes += flow.TakeWidening() - 5;
    while (flow.pending_message_bytes() > 0) {
      const auto piece = std::min<size_t>(data.size(), static_cast<size_t>(flow.pending_message_bytes()));
      flow.Receive(absl::string_view(data).substr(0, piece), 0);
      open_bytes += flow.TakeWidening() - static_cast<int64_t>(piece);
      ASSERT_GT(open_bytes, int64_t{1} << 20) << message;
    }
  }
}

}  // namespace
}  // namespace sluice

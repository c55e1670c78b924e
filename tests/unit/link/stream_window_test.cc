#include "lib/link/stream_window.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

// The window that the client has opened, as announced to the worker.
class Opened {
 public:
  explicit Opened(bool server_streaming) : window_(server_streaming) {}

  // Grants as LinkSchedule does: bytes that arrived without a grant are granted with the next part.
  void Grant(int64_t bytes) {
    window_.Grant(bytes + ungranted_bytes_);
    ungranted_bytes_ = 0;
    open_bytes_ += window_.TakeWidening();
    granted_bytes_ = bytes;
  }
  void ReceivePrefix() {
    window_.Receive(0, 5, 0);
    open_bytes_ -= 5;
  }
  // Receives all bytes of a message that the window allows.
  void ReceiveAll() {
    window_.Receive(open_bytes_, 0, 0);
    ungranted_bytes_ = open_bytes_ - granted_bytes_;
    open_bytes_ = granted_bytes_ = 0;
  }
  void EndMessage() { open_bytes_ += window_.TakeWidening(); }
  int64_t open_bytes() const { return open_bytes_; }

 private:
  StreamWindow window_;
  int64_t open_bytes_ = StreamWindow::kFirstBytes;
  int64_t granted_bytes_ = 0;    // that have not arrived
  int64_t ungranted_bytes_ = 0;  // that arrived and must still be granted
};

// Each time a worker uses up its whole window, it sends some bytes in the room next to the grants.
TEST(StreamWindowTest, PartsThatAreUsedUpDoNotWidenTheRoomBesideThem) {
  for (const bool server_streaming : {false, true}) {
    Opened opened(server_streaming);
    opened.ReceivePrefix();
    const int64_t room_bytes = server_streaming ? 6 : 1;
    for (int part = 0; part < 10'000; ++part) {
      opened.Grant(1000);
      ASSERT_EQ(opened.open_bytes(), 1000 + room_bytes) << "part " << part;
      opened.ReceiveAll();
    }
  }
}

TEST(StreamWindowTest, MessagesOfAByteDoNotWidenTheRoom) {
  Opened opened(true);
  for (int message = 0; message < 10'000; ++message) {
    opened.ReceivePrefix();
    opened.ReceiveAll();
    opened.EndMessage();
    ASSERT_EQ(opened.open_bytes(), 6) << "message " << message;
    opened.Grant(0);
    ASSERT_EQ(opened.open_bytes(), 6) << "message " << message;
  }
}

TEST(StreamWindowTest, AnAnswerOfAByteLeavesAByteForTheTrailers) {
  Opened opened(false);
  opened.ReceivePrefix();
  opened.ReceiveAll();
  opened.EndMessage();
  EXPECT_EQ(opened.open_bytes(), 1);
}

}  // namespace
}  // namespace sluice

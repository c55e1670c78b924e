// Tests how all streams share the connection if the peer reads slowly: their DATA takes turns.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/http2/session_pair.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::Lt;

constexpr size_t kStreams = 4;
constexpr size_t kOutputBytes = 32'768;

// A server that always has more to send on each stream, and a client that reads one output at a time.
class SlowReaderTest : public ::testing::Test {
 protected:
  void Open(RecordedStream& call, const HeaderList& more_headers = {}) {
    HeaderList headers = RequestHeaders();
    headers.insert(headers.end(), more_headers.begin(), more_headers.end());
    ids_.push_back(*pair_.client->Open(headers, "", true, 1 << 30, call));
    SessionPair::CarryOnce(*pair_.client, *pair_.server);
    pair_.server->SendHeaders(ids_.back(), ResponseHeaders(), false);
  }
  void Fill(int32_t id) {
    while (pair_.server->unsent_bytes(id) < 100'000) {
      ASSERT_TRUE(pair_.server->SendData(id, std::string(10'000, 'x'), false).ok());
    }
  }
  void ReadOne() {
    for (const int32_t id : ids_) Fill(id);
    SessionPair::CarryOnce(*pair_.server, *pair_.client);
    SessionPair::CarryOnce(*pair_.client, *pair_.server);  // carries the connection's window update
  }

  SessionPair pair_{{}, {.max_output_bytes = kOutputBytes}};
  std::vector<int32_t> ids_;
};

TEST_F(SlowReaderTest, AllStreamsAdvanceAlike) {
  RecordedStream calls[kStreams];
  for (RecordedStream& call : calls) Open(call);
  for (int i = 0; i < 100; ++i) ReadOne();
  const auto [least, most] = std::minmax_element(
      std::begin(calls), std::end(calls), [](const auto& a, const auto& b) { return a.data.size() < b.data.size(); });
  EXPECT_GT(most->data.size(), 100 * kOutputBytes / kStreams);
  EXPECT_LE(most->data.size() - least->data.size(), kOutputBytes);
}

TEST_F(SlowReaderTest, AStreamThatBeginsLaterIsServedAtOnce) {
  RecordedStream calls[kStreams], late;
  for (RecordedStream& call : calls) Open(call);
  for (int i = 0; i < 100; ++i) ReadOne();
  Open(late);
  for (int i = 0; i < 10; ++i) ReadOne();
  EXPECT_GE(late.data.size(), 9 * kOutputBytes / (kStreams + 1));
}

TEST_F(SlowReaderTest, AnEndOfAShortStreamDoesNotWaitForTheEndOfLongOnes) {
  RecordedStream calls[kStreams], call;
  for (RecordedStream& endless : calls) Open(endless);
  for (int i = 0; i < 10; ++i) ReadOne();
  Open(call);
  const int32_t id = ids_.back();
  ids_.pop_back();
  ASSERT_TRUE(pair_.server->SendData(id, std::string(100'000, 'x'), false).ok());
  pair_.server->SendHeaders(id, Trailers(), true);
  for (int i = 0; i < 20; ++i) ReadOne();
  EXPECT_TRUE(call.is(StreamEnd::Kind::kComplete));
}

// See RFC 9218.
TEST_F(SlowReaderTest, AClientMayAskForOneStreamFirst) {
  RecordedStream calls[kStreams], urgent;
  for (RecordedStream& call : calls) Open(call);
  for (int i = 0; i < 10; ++i) ReadOne();
  std::vector<size_t> before;
  for (const RecordedStream& call : calls) before.push_back(call.data.size());
  Open(urgent, {{"priority", "u=1, i"}});
  for (int i = 0; i < 10; ++i) ReadOne();
  EXPECT_GE(urgent.data.size(), 9 * kOutputBytes);
  std::vector<size_t> meanwhile;
  for (size_t i = 0; i < kStreams; ++i) meanwhile.push_back(calls[i].data.size() - before[i]);
  EXPECT_THAT(meanwhile, Each(Lt(2 * kOutputBytes)));
}

}  // namespace
}  // namespace sluice

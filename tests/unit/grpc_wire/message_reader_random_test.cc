#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lib/grpc_wire/message_reader.h"
#include "lib/grpc_wire/request.h"
#include "tests/random_seed.h"
#include "tests/unit/grpc_wire/test_messages.h"

namespace sluice {
namespace {

constexpr int64_t kRandomBytes = 2000;

// Random bytes, and the expected result of a reader that receives all of them at once.
struct Oracle {
  explicit Oracle(std::mt19937_64& random) {
    for (uint64_t left = random() % 12; left > 0 && error == absl::StatusCode::kOk; --left) AppendMessage(random);
    if (error != absl::StatusCode::kOk) return;
    whole = bytes.size();
    const std::string cut = FrameMessage(std::string(1 + random() % kRandomBytes, 'c'));
    bytes += cut.substr(0, random() % cut.size());
  }

  void AppendMessage(std::mt19937_64& random) {
    const std::string message(random() % 5 == 0 ? 0 : random() % kRandomBytes, static_cast<char>('a' + random() % 26));
    switch (random() % 24) {
      case 0:
        return AppendBad(FrameMessage(std::string(kRandomBytes + 1, 'x')), absl::StatusCode::kResourceExhausted);
      case 1:
        return AppendBad(Framed(static_cast<char>(2 + random() % 254), message), absl::StatusCode::kInternal);
      default:
        messages.push_back({.bytes = message, .gzip = random() % 3 == 0});
        bytes += Framed(messages.back().gzip ? 1 : 0, message);
        ends.push_back(bytes.size());
    }
  }

  void AppendBad(const std::string& bad, absl::StatusCode code) {
    whole = bytes.size();
    bytes += bad;
    error = code;
  }

  size_t MessagesIn(size_t came) const {
    return std::count_if(ends.begin(), ends.end(), [came](size_t end) { return end <= came; });
  }

  // Returns the missing bytes of the message after the last whole one in the first `came` bytes. Its prefix must be
  // valid.
  int64_t PendingIn(size_t came) const {
    const size_t count = MessagesIn(came);
    const size_t begin = count == 0 ? 0 : ends[count - 1];
    if (came - begin < MessageReader::kPrefixBytes) return 0;
    uint32_t size = 0;
    for (size_t i = 1; i < MessageReader::kPrefixBytes; ++i) size = size << 8 | static_cast<uint8_t>(bytes[begin + i]);
    return static_cast<int64_t>(size - (came - begin - MessageReader::kPrefixBytes));
  }

  std::string bytes;
  std::vector<WireMessage> messages;
  std::vector<size_t> ends;  // end of each message in `bytes`
  size_t whole = 0;          // total size of the whole messages
  absl::StatusCode error = absl::StatusCode::kOk;
};

void ReadInRandomPieces(uint64_t seed) {
  std::mt19937_64 random(seed);
  const Oracle oracle(random);
  MessageReader reader(kRandomBytes);
  ASSERT_TRUE(reader.SetEncoding("gzip").ok());
  const uint64_t largest_piece = uint64_t{1} << random() % 14;
  std::vector<WireMessage> taken;
  absl::Status status;
  for (size_t came = 0; came < oracle.bytes.size();) {
    const std::string piece = oracle.bytes.substr(came, random() % (largest_piece + 1));
    came += piece.size();
    status = reader.Read(piece);
    if (random() % 2 == 0) {
      for (WireMessage message; reader.TakeMessage(message);) taken.push_back(message);
      ASSERT_EQ(taken.size(), oracle.MessagesIn(came));
    }
    ASSERT_EQ(reader.messages(), static_cast<int64_t>(oracle.MessagesIn(came)));
    if (came <= oracle.whole || oracle.error == absl::StatusCode::kOk) {
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(reader.pending_message_bytes(), oracle.PendingIn(came));
      const size_t count = oracle.MessagesIn(came);
      ASSERT_EQ(reader.in_message(), came > (count == 0 ? 0 : oracle.ends[count - 1]));
    }
  }
  for (WireMessage message; reader.TakeMessage(message);) taken.push_back(message);
  EXPECT_EQ(taken, oracle.messages);
  EXPECT_EQ(status.code(), oracle.error) << status;
}

TEST(MessageReaderRandomTest, PiecesDoNotMatter) {
  const auto [first, replays] = TakeRandomSeed();
  const int runs = replays ? 1 : 1000;
  for (int run = 0; run < runs; ++run) {
    SCOPED_TRACE("replay with SLUICE_SEED=" + std::to_string(first + run));
    ReadInRandomPieces(first + run);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace sluice

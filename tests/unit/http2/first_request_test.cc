#include "lib/http2/first_request.h"

#include <algorithm>
#include <string>

#include <nghttp2/nghttp2.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/http2/raw_frames.h"

namespace sluice {
namespace {

const HeaderList kGet = {{":method", "GET"}, {":path", "/"}, {"content-type", "text/plain"}};

struct RequestRead {
  FirstRequest request;
  std::string out;
};

RequestRead ReadInSteps(absl::string_view bytes, size_t step) {
  RequestRead outcome;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(step, bytes.size()))) {
    outcome.request.Read(bytes.substr(0, step), outcome.out);
  }
  return outcome;
}

TEST(FirstRequestTest, HasTheHeadOfTheFirstRequestHoweverTheBytesAreCut) {
  const std::string before = absl::StrCat(raw::Settings({{raw::kEnablePush, 0}}), raw::WindowUpdate(0, 1000));
  const std::string bytes = absl::StrCat(before, raw::Headers(1, kGet), raw::Data(1, "body", true));
  const size_t head_bytes = bytes.size() - raw::Data(1, "body", true).size();
  for (size_t step = 1; step <= bytes.size(); ++step) {
    const RequestRead outcome = ReadInSteps(bytes, step);
    ASSERT_NE(outcome.request.head(), nullptr) << step;
    EXPECT_EQ(*outcome.request.head(), kGet) << step;
    EXPECT_EQ(outcome.out, bytes) << step;
    EXPECT_FALSE(ReadInSteps(bytes.substr(0, head_bytes - 1), step).request.decided()) << step;
    EXPECT_TRUE(ReadInSteps(bytes.substr(0, head_bytes), step).request.decided()) << step;
  }
}

TEST(FirstRequestTest, TakesOutTheAcknowledgementOfItsSettingsAlone) {
  const std::string before = raw::Settings();
  const std::string after = absl::StrCat(raw::Headers(1, kGet, true), raw::SettingsAck(), raw::Ping());
  const std::string bytes = absl::StrCat(before, raw::SettingsAck(), after);
  for (size_t step = 1; step <= bytes.size(); ++step) {
    const RequestRead outcome = ReadInSteps(bytes, step);
    EXPECT_EQ(outcome.out, absl::StrCat(before, after)) << step;
    EXPECT_TRUE(outcome.request.done()) << step;
  }
}

TEST(FirstRequestTest, TakesTheAcknowledgementOutAfterTheRequest) {
  const std::string request = raw::Headers(1, kGet);
  const std::string body = raw::Data(1, std::string(300, '\x04'), true);
  const std::string bytes = absl::StrCat(request, body, raw::SettingsAck(), "the res");
  for (size_t step = 1; step <= bytes.size(); ++step) {
    RequestRead outcome = ReadInSteps(bytes, step);
    EXPECT_FALSE(outcome.request.done()) << "a part of a frame header is kept";
    outcome.request.Read("t of a frame", outcome.out);
    EXPECT_EQ(outcome.out, absl::StrCat(request, body, "the rest of a frame")) << step;
  }
}

TEST(FirstRequestTest, ReadsAHeadWithPaddingPriorityAndContinuations) {
  const std::string block = raw::HeaderBlock(kGet);
  const std::string first =
      absl::StrCat(raw::Number(3, 1), std::string(5, '\0'), block.substr(0, 10), std::string(3, '\0'));
  const std::string bytes =
      absl::StrCat(raw::Frame(raw::kHeaders, NGHTTP2_FLAG_PADDED | NGHTTP2_FLAG_PRIORITY, 1, first),
                   raw::Frame(raw::kContinuation, 0, 1, block.substr(10, 5)),
                   raw::Frame(raw::kContinuation, raw::kEndHeaders, 1, block.substr(15)));
  for (const size_t step : {size_t{1}, size_t{10}, bytes.size()}) {
    const RequestRead outcome = ReadInSteps(bytes, step);
    ASSERT_NE(outcome.request.head(), nullptr);
    EXPECT_EQ(*outcome.request.head(), kGet);
    EXPECT_EQ(outcome.out, bytes);
  }
}

// The server judges what follows.
TEST(FirstRequestTest, EndsWithoutAHeadAtWhatNoClientSendsFirst) {
  const std::string half = raw::Frame(raw::kHeaders, 0, 1, raw::HeaderBlock(kGet));
  for (const std::string& bytes :
       {raw::Ping(), raw::GoAway(0), raw::Data(1, "?"), raw::RstStream(1, 8), raw::Headers(0, kGet),
        raw::Frame(raw::kContinuation, raw::kEndHeaders, 1, ""), absl::StrCat(half, raw::Ping()),
        absl::StrCat(half, raw::Frame(raw::kContinuation, raw::kEndHeaders, 3, "")),
        raw::Frame(raw::kHeaders, raw::kEndHeaders, 1, "\xff\xff\xff\xff\xff"),
        raw::Frame(raw::kHeaders, raw::kEndHeaders | raw::kPadded, 1, "\xff")}) {
    const RequestRead outcome = ReadInSteps(bytes, 1);
    EXPECT_TRUE(outcome.request.decided());
    EXPECT_TRUE(outcome.request.head() == nullptr || outcome.request.head()->empty());
    EXPECT_EQ(outcome.out, bytes);
  }
}

TEST(FirstRequestTest, BoundsWhatComesBeforeTheRequest) {
  FirstRequest request;
  std::string out;
  size_t frames = 0;
  while (!request.decided() && frames < 100000) {
    request.Read(raw::WindowUpdate(0, 1), out);
    ++frames;
  }
  EXPECT_LE(out.size(), (64u << 10) + 13);
}

// A field of the table takes one byte, and adds 4 KB to the list.
TEST(FirstRequestTest, BoundsTheHeaderListAndNotOnlyItsBlock) {
  const std::string value(3900, 'x');
  const std::string indexed = absl::StrCat(raw::Number(0x40, 1), raw::HpackString("a"), raw::HpackString(value));
  const std::string block = absl::StrCat(indexed, std::string(10000, '\xbe'));
  const RequestRead outcome = ReadInSteps(raw::Frame(raw::kHeaders, raw::kEndHeaders, 1, block), 1000);
  EXPECT_TRUE(outcome.request.decided());
  EXPECT_EQ(outcome.request.head(), nullptr);
}

}  // namespace
}  // namespace sluice

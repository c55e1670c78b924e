#include "lib/cli/logging.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(FormatLogfmtTest, WritesWordsAsTheyAreAndQuotesTheRest) {
  EXPECT_EQ(FormatLogfmt("serving", {}), "msg=serving");
  EXPECT_EQ(FormatLogfmt("worker lost", {{"worker", "10.0.0.7:7000"}, {"file", std::string("a b")}}),
            R"(msg="worker lost" worker=10.0.0.7:7000 file="a b")");
  EXPECT_EQ(FormatLogfmt("", {{"empty", ""}, {"pair", "a=b"}}), R"(msg="" empty="" pair="a=b")");
}

TEST(FormatLogfmtTest, WritesNumbersTruthsDurationsAndStatuses) {
  EXPECT_EQ(FormatLogfmt("x", {{"count", -3},
                               {"bytes", uint64_t{18446744073709551615u}},
                               {"share", 0.5},
                               {"ok", true},
                               {"wait", absl::Milliseconds(20)},
                               {"status", absl::NotFoundError("no file")}}),
            R"(msg=x count=-3 bytes=18446744073709551615 share=0.5 ok=true wait=20ms status="NOT_FOUND: no file")");
}

TEST(FormatLogfmtTest, EscapesWhatWouldBreakTheLine) {
  EXPECT_EQ(FormatLogfmt("x", {{"v", "a\nmsg=forged"}}), R"(msg=x v="a\nmsg=forged")");
  EXPECT_EQ(FormatLogfmt("x", {{"v", R"(say "hi")"}}), R"(msg=x v="say \"hi\"")");
  EXPECT_EQ(FormatLogfmt("x", {{"v", R"(a\b)"}}), R"(msg=x v="a\\b")");
  EXPECT_EQ(FormatLogfmt("x", {{"v", "\t\r\x1b[31m"}}), R"(msg=x v="\t\u000d\u001b[31m")");
  EXPECT_EQ(FormatLogfmt("x", {{"v", std::string("a\0b", 3)}}), R"(msg=x v="a\u0000b")");
  EXPECT_EQ(FormatLogfmt("x", {{"v", "\x7f"}}), R"(msg=x v="\u007f")");
  EXPECT_EQ(FormatLogfmt("x", {{"v", "größe"}}), "msg=x v=größe");
}

std::string LogLines(const std::string& level) {
  ::testing::internal::CaptureStderr();
  StartLogging();
  EXPECT_TRUE(SetLogLevel(level).ok());
  Log(LogLevel::kDebug, "detail");
  Log(LogLevel::kInfo, "100% {} done", {{"n", 1}});
  Log(LogLevel::kError, "bad");
  return ::testing::internal::GetCapturedStderr();
}

TEST(LogTest, WritesOneLineAnEventWithTimeAndLevel) {
  EXPECT_THAT(LogLines("info"), MatchesRegex("ts=[0-9-]+T[0-9:]+\\.[0-9]+Z level=info msg=\"100% \\{\\} done\" n=1\n"
                                             "ts=[0-9-]+T[0-9:]+\\.[0-9]+Z level=error msg=bad\n"));
}

TEST(SetLogTreeLevelTest, IsInEveryLineUntilItIsTakenBack) {
  ::testing::internal::CaptureStderr();
  StartLogging();
  SetLogTreeLevel("mla");
  Log(LogLevel::kInfo, "in", {{"n", 1}});
  SetLogTreeLevel("");
  Log(LogLevel::kInfo, "out");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              MatchesRegex("ts=[^ ]+ level=info tree_level=mla msg=in n=1\nts=[^ ]+ level=info msg=out\n"));
}

TEST(SetLogLevelTest, HidesWhatIsBelow) {
  EXPECT_THAT(LogLines("debug"), HasSubstr("msg=detail"));
  EXPECT_THAT(LogLines("error"), Not(HasSubstr("done")));
  EXPECT_THAT(LogLines("error"), HasSubstr("msg=bad"));
  EXPECT_THAT(LogLines(""), HasSubstr("done")) << "the default is info";
}

TEST(SetLogLevelTest, RefusesAnUnknownLevel) {
  const absl::Status status = SetLogLevel("chatty");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("log_level: \"chatty\""));
}

}  // namespace
}  // namespace sluice

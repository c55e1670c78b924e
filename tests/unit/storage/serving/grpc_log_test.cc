#include "lib/storage/serving/grpc_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(LogWhatGrpcLogsTest, WritesALineOfOursWithThePlaceInGrpc) {
  ::testing::internal::CaptureStderr();
  StartLogging();
  ASSERT_TRUE(SetLogLevel("info").ok());
  LogWhatGrpcLogs();
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_INFO);
  gpr_log("src/core/tls.cc", 7, GPR_LOG_SEVERITY_ERROR, "handshake failed: %d", 3);
  gpr_log("here.cc", 8, GPR_LOG_SEVERITY_DEBUG, "detail");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::MatchesRegex("ts=[^ ]+ level=error msg=\"handshake failed: 3\" grpc=tls.cc:7 unlogged=0\n"));
}

TEST(LogWhatGrpcLogsTest, OneLineOfEachKindInAnInterval) {
  ::testing::internal::CaptureStderr();
  StartLogging();
  ASSERT_TRUE(SetLogLevel("info").ok());
  LogWhatGrpcLogs();
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_INFO);
  for (int i = 0; i < 1000; ++i) {
    gpr_log("src/core/server.cc", 11, GPR_LOG_SEVERITY_ERROR, "handshake %d failed: %s", i, i % 2 == 0 ? "a" : "b");
    gpr_log("src/core/server.cc", 12, GPR_LOG_SEVERITY_ERROR, "other %d", i);
  }
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      ::testing::MatchesRegex("[^\n]*handshake 0 failed: a[^\n]*\n[^\n]*other 0[^\n]*\n[^\n]*failed: b[^\n]*\n"));
}

}  // namespace
}  // namespace sluice

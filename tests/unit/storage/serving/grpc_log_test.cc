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
              ::testing::MatchesRegex("ts=[^ ]+ level=error msg=\"handshake failed: 3\" grpc=tls.cc:7\n"));
}

}  // namespace
}  // namespace sluice

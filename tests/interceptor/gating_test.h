#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include <grpcpp/security/credentials.h>

#include "sluice/interceptor.h"
#include "sluice/link.h"
#include "sluice/v1/block_service.grpc.pb.h"
#include "sluice/v1/sru_service.grpc.pb.h"

#include "gtest/gtest.h"
#include "tests/eventually.h"
#include "tests/has_code.h"
#include "tests/interceptor/gated_server.h"
#include "tests/interceptor/stub_call.h"

namespace sluice::testing {

// A channel to a plain server, gated by a link.
class GatingTest : public ::testing::Test {
 protected:
  ~GatingTest() override {
    server_.Open();
    if (link_) {
      EXPECT_TRUE(AwaitIdle());
    }
  }

  // So many answers at a time.
  void Connect(int answers, int64_t queue_limit = 65536) {
    LinkSchedule::Options schedule{.discipline = Discipline::kRolling, .queue_limit = queue_limit};
    schedule.budget_bytes = answers * schedule.profile.frame_bytes;
    schedule.stall_timeout = absl::Minutes(10);  // the server is held for as long as a test takes
    link_ = *Link::Create({.schedule = schedule});
    const auto channel =
        *CreateGatedChannel(link_, server_.address(), grpc::InsecureChannelCredentials(),
                            {.response_bytes = [this](std::string_view method) { return Expected(method); },
                             .learn_response_bytes = learn_});
    stub_ = v1::SruService::NewStub(channel);
    blocks_ = v1::BlockService::NewStub(channel);
  }

  std::optional<int64_t> Expected(std::string_view method) {
    if (method == "/sluice.v1.SruService/ReadManifest") return sru_bytes_;
    if (method == "/sluice.v1.BlockService/Read") return block_bytes_;
    return std::nullopt;
  }

  bool AwaitIdle() {
    return Eventually([this] {
      const ScheduleState state = link_->State();
      return state.submitted_calls == state.ended_calls && state.in_flight_bytes == 0;
    });
  }
  bool AwaitWaiting(int64_t calls) {
    return Eventually([this, calls] { return link_->State().waiting_calls == calls; });
  }
  bool AwaitOpen(int calls) {
    return server_.Await([calls](const GatedServer::Counts& counts) { return counts.open == calls; });
  }

  GatedServer server_;
  std::optional<int64_t> sru_bytes_ = kAnswerBytes;
  int64_t block_bytes_ = kAnswerBytes;
  bool learn_ = false;
  std::shared_ptr<Link> link_;
  std::unique_ptr<v1::SruService::Stub> stub_;
  std::unique_ptr<v1::BlockService::Stub> blocks_;
};

}  // namespace sluice::testing

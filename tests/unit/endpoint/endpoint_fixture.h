#pragma once

#include <cstdint>
#include <memory>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "sluice/endpoint.h"
#include "sluice/link.h"
#include "sluice/v1/block_service.grpc.pb.h"
#include "sluice/v1/sru_service.grpc.pb.h"

#include "gtest/gtest.h"
#include "tests/eventually.h"
#include "tests/has_code.h"
#include "tests/unit/endpoint/gated_server.h"
#include "tests/unit/endpoint/stub_call.h"

namespace sluice::testing {

// A channel to a plain gRPC server, through an endpoint of a link.
class EndpointTest : public ::testing::Test {
 protected:
  ~EndpointTest() override {
    server_.Open();
    if (link_) {
      EXPECT_TRUE(AwaitIdle());
    }
  }

  // Connects over a link whose budget holds this number of responses at a time.
  void Connect(int answers, int64_t queue_limit = 65536) {
    ScheduleOptions schedule{.policy = SchedulePolicy::kRolling, .queue_limit = queue_limit};
    schedule.budget_bytes = answers * schedule.profile.frame_bytes;
    schedule.stall_timeout = absl::Minutes(10);  // the server is held for the duration of a test
    link_ = *Link::Create({.schedule = schedule});
    endpoint_ = *Endpoint::Create(link_);
    grpc::ChannelArguments arguments;
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, server_.address());
    const auto channel = grpc::CreateCustomChannel(endpoint_->target(), grpc::InsecureChannelCredentials(), arguments);
    stub_ = v1::SruService::NewStub(channel);
    blocks_ = v1::BlockService::NewStub(channel);
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
  std::shared_ptr<Link> link_;
  std::unique_ptr<Endpoint> endpoint_;
  std::unique_ptr<v1::SruService::Stub> stub_;
  std::unique_ptr<v1::BlockService::Stub> blocks_;
};

}  // namespace sluice::testing

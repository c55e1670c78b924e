#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/io_thread.h"
#include "lib/storage/serving/sru_server.h"
#include "lib/tcp/socket_diag.h"
#include "prometheus/registry.h"
#include "tests/eventually.h"
#include "tests/unit/storage/serving/sru_read.h"
#include "tests/unit/storage/serving/sru_request.h"
#include "tests/unit/storage/stripe/striped_folder.h"
#include "tests/wait_until.h"

namespace sluice::testing {

// A server on loopback with "data", 95 bytes in SRUs of 10 over 3 workers, and a client.
class SruServerTest : public ::testing::Test {
 protected:
  void Start(const SruServer::Options& options = {}) {
    const auto manifest =
        testing::StripeBytes(source_, {.root = folder_.path(), .file = "data", .workers = 3, .sru_bytes = 10});
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    service_ = std::make_unique<SruServer>(store_, metrics_, reports_, io_thread_.context(), options);
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    port_ = absl::StrCat(port);
    stub_ = v1::SruService::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }

  ~SruServerTest() override {
    if (server_) server_->Shutdown(absl::ToChronoTime(absl::Now() + kPatience));
  }

  grpc::Status Read(const v1::ReadSruRequest& request, absl::Duration deadline = kPatience) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
    return ReadSru(*stub_, context, request, response_);
  }

  std::unique_ptr<AsyncSruRead> Begin(const v1::ReadSruRequest& request,
                                      std::function<void(const grpc::Status&)> done) {
    return std::make_unique<AsyncSruRead>(*stub_, request, std::move(done));
  }

  // Returns a stub whose calls request each message separately, and accept hardly a byte before.
  std::unique_ptr<v1::SruService::Stub> SlowStub() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 5);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return v1::SruService::NewStub(
        grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port_), grpc::InsecureChannelCredentials(), arguments));
  }

  // Stripes "large", one SRU at one worker.
  std::string StripeLarge(size_t bytes) {
    std::string large = testing::SourceBytes(bytes);
    EXPECT_TRUE(
        testing::StripeBytes(large, {.root = folder_.path(), .file = "large", .workers = 1, .sru_bytes = 64 << 20})
            .ok());
    return large;
  }

  grpc::Status ReadManifestStatus(uint32_t length) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    v1::ReadManifestRequest request;
    request.set_file("data");
    request.set_length(length);
    v1::ReadManifestResponse response;
    return stub_->ReadManifest(&context, request, &response);
  }

  uint64_t ReadsStarted() {
    for (const auto& family : registry_.Collect()) {
      if (family.name == "sluice_worker_read_seconds") return family.metric.at(0).histogram.sample_count;
    }
    return 0;
  }

  void ExpectReadsStarted(uint64_t expected) {
    WaitUntil([&] { return ReadsStarted() == expected; }, kPatience);
    EXPECT_EQ(ReadsStarted(), expected);
  }

  // Returns the value of a counter with one label; -1 if it is missing.
  double Counter(const std::string& name, const std::string& outcome) {
    for (const auto& family : registry_.Collect()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        if (outcome.empty() || metric.label.at(0).value == outcome) return metric.counter.value;
      }
    }
    return -1;
  }

  // gRPC may finish a call, and move its counters, after the client has the response.
  void ExpectCounter(const std::string& name, const std::string& outcome, double expected) {
    WaitUntil([&] { return Counter(name, outcome) == expected; }, kPatience);
    EXPECT_EQ(Counter(name, outcome), expected) << name << " " << outcome;
  }

  const std::string source_ = testing::SourceBytes(95);
  testing::TemporaryFolder folder_;
  IoThread io_thread_;
  const StripeStore store_ = StripeStore::Open(folder_.path()).value();
  prometheus::Registry registry_;
  WorkerMetrics metrics_{registry_};
  TcpReports reports_;
  std::unique_ptr<SruServer> service_;
  std::string port_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::SruService::Stub> stub_;
  v1::ReadSruResponse response_;
};

}  // namespace sluice::testing

#include "lib/storage/serving/health_service.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/client_callback.h>

#include "sluice/v1/sru_service.grpc.pb.h"

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/storage/serving/rpc_server.h"
#include "tests/eventually.h"

namespace sluice {
namespace {

using testing::Eventually;
using testing::kPatience;

grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message) {
  const grpc::Slice bytes(message.SerializeAsString());
  return grpc::ByteBuffer(&bytes, 1);
}

bool Parse(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite& message) {
  grpc::Slice bytes;
  return buffer.DumpToSingleSlice(&bytes).ok() && message.ParseFromArray(bytes.begin(), static_cast<int>(bytes.size()));
}

constexpr int kServing = 1;
constexpr int kNotServing = 2;
constexpr int kServiceUnknown = 3;

grpc::ByteBuffer Request(const std::string& service) {
  google::protobuf::StringValue message;
  message.set_value(service);
  return Serialize(message);
}

int StatusIn(grpc::ByteBuffer& answer) {
  google::protobuf::Int32Value message;
  EXPECT_TRUE(Parse(answer, message));
  return message.value();
}

std::chrono::system_clock::time_point Deadline() {
  return std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kPatience);
}

// A client of Watch.
class Watch : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Watch(grpc::GenericStub& stub, const std::string& service) : request_(Request(service)) {
    context_.set_deadline(Deadline());
    stub.PrepareBidiStreamingCall(&context_, "/grpc.health.v1.Health/Watch", {}, this);
    StartRead(&answer_);
    StartWriteLast(&request_, grpc::WriteOptions());
    StartCall();
  }
  ~Watch() override {
    context_.TryCancel();
    done_.WaitForNotification();
  }

  bool AwaitStatus(int expected) {
    absl::MutexLock lock(&mutex_);
    const auto told = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return last_ == expected; };
    return mutex_.AwaitWithTimeout(absl::Condition(&told), kPatience);
  }
  // Returns false if the watch ends first.
  bool AwaitStatusOrEnd(int expected) {
    absl::MutexLock lock(&mutex_);
    const auto told = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return last_ == expected || ended_early_; };
    return mutex_.AwaitWithTimeout(absl::Condition(&told), kPatience) && last_ == expected;
  }
  bool AwaitEnd(grpc::StatusCode code) {
    return done_.WaitForNotificationWithTimeout(kPatience) && ended_.error_code() == code;
  }
  int answers() {
    absl::MutexLock lock(&mutex_);
    return answers_;
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    {
      absl::MutexLock lock(&mutex_);
      last_ = StatusIn(answer_);
      ++answers_;
    }
    StartRead(&answer_);
  }
  void OnDone(const grpc::Status& status) override {
    {
      absl::MutexLock lock(&mutex_);
      ended_early_ = true;
    }
    ended_ = status;
    done_.Notify();
  }

  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
  absl::Mutex mutex_;
  int last_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_early_ ABSL_GUARDED_BY(mutex_) = false;
  int answers_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::Status ended_;
  absl::Notification done_;
};

class HealthServiceTest : public ::testing::Test {
 protected:
  void Start(RpcServer::Options options = {}) {
    options.listen = {"127.0.0.1:0"};
    auto server = RpcServer::Start(options, {&sru_service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = std::make_unique<grpc::GenericStub>(
        grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials()));
  }

  grpc::Status Call(const std::string& method, grpc::ByteBuffer request, grpc::ByteBuffer& answer) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    grpc::Status status;
    absl::Notification done;
    stub_->UnaryCall(&context, method, {}, &request, &answer, [&](grpc::Status ended) {
      status = std::move(ended);
      done.Notify();
    });
    done.WaitForNotification();
    return status;
  }

  // Returns 0 if the call fails.
  int Check(const std::string& service) {
    grpc::ByteBuffer answer;
    const grpc::Status status = Call("/grpc.health.v1.Health/Check", Request(service), answer);
    return status.ok() ? StatusIn(answer) : 0;
  }

  v1::SruService::Service sru_service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<grpc::GenericStub> stub_;
};

TEST_F(HealthServiceTest, ReadinessMayChangeAndLivenessStays) {
  Start({.ready = false});
  for (const bool ready : {false, true, false}) {
    server_->SetReady(ready);
    for (const char* service : {"", "readiness"}) EXPECT_EQ(Check(service), ready ? kServing : kNotServing) << service;
    EXPECT_EQ(Check("liveness"), kServing);
  }
}

TEST_F(HealthServiceTest, AServerIsReadyUnlessItSaysOtherwise) {
  Start();
  EXPECT_EQ(Check(""), kServing);
  EXPECT_EQ(Check("readiness"), kServing);
}

TEST_F(HealthServiceTest, WhatIsNotThereIsSaidToBeNotThere) {
  Start();
  grpc::ByteBuffer answer;
  EXPECT_EQ(Call("/grpc.health.v1.Health/Check", Request("sluice"), answer).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Call("/grpc.health.v1.Health/Chekc", Request(""), answer).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Call("/no.such.Service/Method", Request(""), answer).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  const grpc::Slice garbage("\xff\xff\xff");
  EXPECT_EQ(Call("/grpc.health.v1.Health/Check", grpc::ByteBuffer(&garbage, 1), answer).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  Watch watch(*stub_, "sluice");
  EXPECT_TRUE(watch.AwaitStatus(kServiceUnknown));
}

TEST_F(HealthServiceTest, AWatchIsToldOfEachChange) {
  Start({.ready = false});
  Watch readiness(*stub_, "readiness");
  Watch liveness(*stub_, "liveness");
  EXPECT_TRUE(readiness.AwaitStatus(kNotServing));
  EXPECT_TRUE(liveness.AwaitStatus(kServing));
  for (const bool ready : {true, false, true}) {
    server_->SetReady(ready);
    EXPECT_TRUE(readiness.AwaitStatus(ready ? kServing : kNotServing));
  }
  server_->SetReady(true);
  EXPECT_EQ(readiness.answers(), 4);
  EXPECT_EQ(liveness.answers(), 1);
}

TEST_F(HealthServiceTest, WatchersHearOfADrainAndDoNotHoldItUp) {
  Start({.drain_timeout = absl::InfiniteDuration()});
  Watch all(*stub_, "");
  Watch liveness(*stub_, "liveness");
  EXPECT_TRUE(all.AwaitStatus(kServing));
  EXPECT_TRUE(liveness.AwaitStatus(kServing));
  server_->Drain();
  EXPECT_TRUE(all.AwaitEnd(grpc::StatusCode::UNAVAILABLE));
  EXPECT_TRUE(all.AwaitStatus(kNotServing));
  EXPECT_TRUE(liveness.AwaitEnd(grpc::StatusCode::UNAVAILABLE));
  EXPECT_TRUE(liveness.AwaitStatus(kServing));
}

TEST_F(HealthServiceTest, AWatchThatIsCancelledIsGone) {
  Start();
  for (int i = 0; i < 20; ++i) {
    Watch watch(*stub_, "");
    // Some watches are gone before they receive a status.
    if (i % 2 == 0) {
      EXPECT_TRUE(watch.AwaitStatus(i == 0 || (i - 1) % 3 == 0 ? kServing : kNotServing));
    }
    server_->SetReady(i % 3 == 0);
  }
  server_->Drain();
}

TEST_F(HealthServiceTest, OneConnectionMayHaveAFewWatches) {
  Start();
  std::vector<std::unique_ptr<Watch>> watches;
  for (int i = 0; i < 16; ++i) {
    watches.push_back(std::make_unique<Watch>(*stub_, ""));
    EXPECT_TRUE(watches.back()->AwaitStatus(kServing));
  }
  Watch refused(*stub_, "");
  EXPECT_TRUE(refused.AwaitEnd(grpc::StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_EQ(Check(""), kServing);
  watches.pop_back();  // the server learns of it a little later
  EXPECT_TRUE(Eventually([this] { return Watch(*stub_, "").AwaitStatusOrEnd(kServing); }));
}

TEST_F(HealthServiceTest, DuringTheDrainDelayItServesAndSaysThatItIsNotReady) {
  Start({.drain_delay = absl::Milliseconds(300)});
  Watch readiness(*stub_, "readiness");
  EXPECT_TRUE(readiness.AwaitStatus(kServing));
  const auto started = std::chrono::steady_clock::now();
  std::thread drain([&] { server_->Drain(); });
  EXPECT_TRUE(readiness.AwaitStatus(kNotServing));
  server_->SetReady(true);
  EXPECT_EQ(Check("readiness"), kNotServing) << "a drain is for good";
  EXPECT_EQ(Check("liveness"), kServing);
  drain.join();
  EXPECT_GE(std::chrono::steady_clock::now() - started, std::chrono::milliseconds(300));
}

}  // namespace
}  // namespace sluice

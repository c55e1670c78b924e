#include <memory>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "sluice/v1/sru_service.grpc.pb.h"
#include "sluice/worker.h"

#include "tests/fan_out/fan_out_fixture.h"

namespace sluice {
namespace {

using testing::IsReadyAndHolds;
using testing::NameOf;
using testing::Script;
using testing::Seen;
using testing::Text;
using testing::Wire;

constexpr char kHeader[] = "sluice-response-bytes";

enum class Interface { kSync, kCallback };

// Both answer with as many bytes as they are asked for; none is an error.
class SyncService final : public v1::SruService::Service {
  grpc::Status ReadManifest(grpc::ServerContext*, const v1::ReadManifestRequest* request,
                            v1::ReadManifestResponse* response) override {
    response->set_data(std::string(request->length(), 'x'));
    return request->length() == 0 ? grpc::Status(grpc::StatusCode::NOT_FOUND, "none") : grpc::Status::OK;
  }
};

// For worker 1 it sends its initial metadata itself, before the response.
class CallbackService final : public v1::SruService::CallbackService {
  class Reactor final : public grpc::ServerUnaryReactor {
   public:
    explicit Reactor(bool early) { early ? StartSendInitialMetadata() : Finish(grpc::Status::OK); }
    void OnSendInitialMetadataDone(bool) override { Finish(grpc::Status::OK); }
    void OnDone() override { delete this; }
  };

  grpc::ServerUnaryReactor* ReadManifest(grpc::CallbackServerContext* context, const v1::ReadManifestRequest* request,
                                         v1::ReadManifestResponse* response) override {
    response->set_data(std::string(request->length(), 'x'));
    if (request->worker() == 1) return new Reactor(/*early=*/true);
    if (request->length() > 0) return new Reactor(/*early=*/false);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "none"));
    return reactor;
  }
};

class ResponseSizeAnnouncerTest : public ::testing::TestWithParam<Interface> {
 protected:
  ResponseSizeAnnouncerTest() {
    if (GetParam() == Interface::kSync) {
      service_ = std::make_unique<SyncService>();
    } else {
      service_ = std::make_unique<CallbackService>();
    }
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    AnnounceResponseSizes(builder);
    server_ = builder.BuildAndStart();
    stub_ = v1::SruService::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }

  // What is announced; "" for nothing.
  std::string Read(uint32_t bytes, uint32_t worker = 0) {
    grpc::ClientContext context;
    v1::ReadManifestRequest request;
    request.set_length(bytes);
    request.set_worker(worker);
    status_ = stub_->ReadManifest(&context, request, &response_);
    const auto& metadata = context.GetServerInitialMetadata();
    const auto found = metadata.find(kHeader);
    EXPECT_LE(metadata.count(kHeader), 1u);
    return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
  }

  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::SruService::Stub> stub_;
  v1::ReadManifestResponse response_;
  grpc::Status status_;
};

INSTANTIATE_TEST_SUITE_P(Of, ResponseSizeAnnouncerTest, ::testing::Values(Interface::kSync, Interface::kCallback),
                         [](const auto& info) { return info.param == Interface::kSync ? "sync" : "callback"; });

TEST_P(ResponseSizeAnnouncerTest, AnnouncesTheBytesOfTheMessage) {
  for (const uint32_t bytes : {1, 1000, 1 << 20}) {
    const std::string announced = Read(bytes);
    ASSERT_TRUE(status_.ok()) << status_.error_message();
    EXPECT_EQ(response_.data().size(), bytes);
    EXPECT_EQ(announced, std::to_string(response_.ByteSizeLong()));
  }
}

TEST_P(ResponseSizeAnnouncerTest, AnErrorHasNoSize) {
  EXPECT_EQ(Read(0), "");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::NOT_FOUND);
}

// A synchronous unary handler cannot send them.
class EarlyHeadersTest : public ResponseSizeAnnouncerTest {};
INSTANTIATE_TEST_SUITE_P(Of, EarlyHeadersTest, ::testing::Values(Interface::kCallback));

TEST_P(EarlyHeadersTest, AreLeftAlone) {
  EXPECT_EQ(Read(1000, /*worker=*/1), "");
  EXPECT_TRUE(status_.ok());
  EXPECT_EQ(response_.data().size(), 1000u);
}

class AnnouncedSizeTest : public testing::FanOutTest {
 protected:
  // What a call is charged of which the caller does not know the size.
  int64_t ChargedFor(std::optional<std::string> announced) {
    servers_.clear();
    Start(1);
    Script script{.messages = {Wire("x")}, .hold_before = 0, .early_headers = true, .announced = std::move(announced)};
    server(0).SetPlay([script](const Seen&) { return script; });
    const auto pending = CallAsync(Ask(1));
    EXPECT_TRUE(AwaitState([](const ScheduleState& state) { return state.in_flight_calls == 1; }));
    const int64_t charged = link_->State().in_flight_bytes;
    server(0).Release();
    EXPECT_TRUE(pending->Await());
    EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
    return charged;
  }
};
INSTANTIATE_TEST_SUITE_P(By, AnnouncedSizeTest, ::testing::Values(Discipline::kGrants), NameOf);

TEST_P(AnnouncedSizeTest, IsWhatTheScheduleCharges) {
  EXPECT_GT(ChargedFor(std::nullopt), 9000);
  const int64_t announced = ChargedFor("8000");
  EXPECT_GT(announced, 8000);
  EXPECT_LT(announced, 9000);
}

TEST_P(AnnouncedSizeTest, NonsenseIsIgnored) {
  const int64_t expected = ChargedFor(std::nullopt);
  for (const char* nonsense : {"", "-1", "many", "1e3", "99999999999999999999"}) {
    EXPECT_EQ(ChargedFor(nonsense), expected) << nonsense;
  }
  EXPECT_LE(ChargedFor("9223372036854775807"), link_->State().budget_bytes) << "bounded";
}

}  // namespace
}  // namespace sluice

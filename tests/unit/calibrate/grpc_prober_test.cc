#include "tools/sluice_calibrate/grpc_prober.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/io_thread.h"
#include "lib/storage/serving/probe_server.h"
#include "lib/storage/serving/rpc_server.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// A worker on loopback that serves probes.
class Worker {
 public:
  Worker() {
    auto server = RpcServer::Start({.listen = {"127.0.0.1:0", "127.0.0.1:0"}}, {&service_});
    if (server.ok()) {
      server_ = *std::move(server);
    } else {
      ADD_FAILURE() << server.status();
    }
  }

  const std::vector<std::string>& addresses() const { return server_->addresses(); }

 private:
  IoThread io_thread_;
  ProbeServer service_{io_thread_.context(), {}};
  std::unique_ptr<RpcServer> server_;
};

// A worker that is too old: it serves a different service.
class OldWorker {
 public:
  OldWorker() {
    auto server = RpcServer::Start({.listen = {"127.0.0.1:0"}}, {});
    if (server.ok()) {
      server_ = *std::move(server);
    } else {
      ADD_FAILURE() << server.status();
    }
  }

  const std::string& address() const { return server_->addresses()[0]; }

 private:
  std::unique_ptr<RpcServer> server_;
};

class GrpcProberTest : public ::testing::Test {
 protected:
  std::unique_ptr<GrpcProber> Make(std::vector<std::string> workers) {
    auto prober = GrpcProber::Create(std::move(workers), [this] { return interrupted_; });
    if (!prober.ok()) {
      ADD_FAILURE() << prober.status();
      return nullptr;
    }
    return *std::move(prober);
  }

  bool interrupted_ = false;
};

TEST_F(GrpcProberTest, SeesThatWorkersAreOnThisHost) {
  const Worker worker;
  const auto prober = Make(worker.addresses());
  const auto path = prober->LookAtPath();
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_TRUE(path->same_host);
  EXPECT_TRUE(path->counts_losses);
  EXPECT_EQ(path->hosts, 1);
  EXPECT_GE(path->packet_payload_bytes, 536);
  EXPECT_EQ(path->frame_bytes, path->packet_payload_bytes + path->ack_frame_bytes);
  EXPECT_THAT(path->notes, IsEmpty());
}

TEST_F(GrpcProberTest, LeavesOutWorkersThatAreTooOldAndNamesThem) {
  const Worker worker;
  const OldWorker old;
  const auto prober = Make({old.address(), worker.addresses()[0]});
  const auto path = prober->LookAtPath();
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_THAT(path->notes, ElementsAre(HasSubstr("left out: worker " + old.address() + ": it is older")));
  EXPECT_TRUE(prober->RunLoop({.in_flight = 1, .payload_bytes = 1, .duration = absl::Milliseconds(1)}).ok());
}

TEST_F(GrpcProberTest, FailsWhereNoWorkerAnswersProbes) {
  const OldWorker old;
  const auto path = Make({old.address()})->LookAtPath();
  EXPECT_TRUE(absl::IsUnimplemented(path.status())) << path.status();
  EXPECT_THAT(std::string(path.status().message()), HasSubstr("--no-probe"));
}

TEST_F(GrpcProberTest, MeasuresRoundTripsInTheKernelAndOfAnswers) {
  const Worker worker;
  const auto round_trips = Make(worker.addresses())->MeasureRoundTrips();
  ASSERT_TRUE(round_trips.ok()) << round_trips.status();
  EXPECT_THAT(round_trips->kernel, SizeIs(Gt(100)));
  EXPECT_THAT(round_trips->kernel, Each(Gt(absl::ZeroDuration())));
  EXPECT_THAT(round_trips->answers, SizeIs(Gt(10)));
  // A response needs a program to wake up, and the kernel's measurement does not.
  EXPECT_LT(*std::min_element(round_trips->kernel.begin(), round_trips->kernel.end()),
            *std::min_element(round_trips->answers.begin(), round_trips->answers.end()));
}

TEST_F(GrpcProberTest, ALoopHasInFlightWhatItIsTold) {
  const Worker worker;
  const ClosedLoop loop = {.in_flight = 5, .payload_bytes = 10'000, .duration = absl::Milliseconds(300)};
  const auto sample = Make(worker.addresses())->RunLoop(loop);
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_GT(sample->in_flight_bytes, 5 * 10'000);
  EXPECT_LT(sample->in_flight_bytes, 5 * 11'000) << "headers and acknowledgements are no tenth of it";
  EXPECT_EQ(sample->lost_packets, 0);
  EXPECT_GT(sample->process_share, 0);
  EXPECT_THAT(sample->round_trips, SizeIs(Gt(4)));
  ASSERT_THAT(sample->windows, Not(IsEmpty()));
  absl::Duration elapsed;
  for (const WireWindow& window : sample->windows) {
    EXPECT_GT(window.bytes, 0);
    elapsed += window.elapsed;
  }
  EXPECT_LE(elapsed, absl::Seconds(10));
  EXPECT_GE(elapsed, absl::Milliseconds(40));
}

TEST_F(GrpcProberTest, EndsWhenItIsInterrupted) {
  const Worker worker;
  const auto prober = Make(worker.addresses());
  interrupted_ = true;
  const absl::Status statuses[] = {
      prober->LookAtPath().status(), prober->MeasureTimers().status(), prober->MeasureRoundTrips().status(),
      prober->RunLoop({.in_flight = 1, .payload_bytes = 1, .duration = absl::Hours(1)}).status()};
  for (const absl::Status& status : statuses) EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

TEST_F(GrpcProberTest, ALoopEndsInItsMiddleWhenItIsInterrupted) {
  const Worker worker;
  int asked = 0;
  auto prober = GrpcProber::Create(worker.addresses(), [&asked] { return ++asked > 100; });
  ASSERT_TRUE(prober.ok()) << prober.status();
  const auto sample = (*prober)->RunLoop({.in_flight = 3, .payload_bytes = 1000, .duration = absl::Hours(1)});
  EXPECT_TRUE(absl::IsCancelled(sample.status())) << sample.status();
  EXPECT_GT(asked, 100);
}

}  // namespace
}  // namespace sluice

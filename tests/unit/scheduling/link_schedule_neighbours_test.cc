#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduling/port_simulation.h"
#include "tests/unit/scheduling/schedule_driver.h"

// Tests what one kind of traffic costs another: guesses decide no order, and no safety rule closes the link.
namespace sluice::testing {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""us;

constexpr int64_t kMegabyte = 1'000'000;
// The time in which a full port drains, and a round trip.
constexpr nanoseconds kDrain = 2622us + 200us;

ScheduleOptions Options() {
  return {.profile = TestPort(), .policy = SchedulePolicy::kGrants, .budget_bytes = {}};
}

std::vector<PortSimulation::Response> Responses(size_t count, PortSimulation::Response response,
                                                uint32_t first_worker = 1) {
  std::vector<PortSimulation::Response> responses(count, response);
  for (size_t i = 0; i < count; ++i) responses[i].worker = first_worker + static_cast<uint32_t>(i);
  return responses;
}

// Queries of eight responses of 1 KB, each of `expected_bytes` by its history, every 50 ms beside scans of 1 MB.
struct Queries {
  nanoseconds longest{0};
  int lost = 0;
  double scan_mbps = 0;
};
Queries RunQueries(int64_t expected_bytes, size_t scans, std::optional<nanoseconds> timeout = {},
                   nanoseconds think = 2ms) {
  PortSimulation simulation(Options());
  std::vector<size_t> scan_blocks;
  for (size_t i = 0; i < scans; ++i) {
    const PortSimulation::Response scan{.bytes = kMegabyte, .expected_bytes = kMegabyte, .think = think};
    scan_blocks.push_back(simulation.Submit(At(0ms), Responses(16, scan)));
  }
  std::vector<size_t> queries;
  for (int i = 0; i < 20; ++i) {
    const TimePoint at = At(100ms + i * 50ms);
    const PortSimulation::Response query{.bytes = 1000, .expected_bytes = expected_bytes, .think = think};
    queries.push_back(simulation.Submit(at, Responses(8, query), 0, timeout ? at + *timeout : TimePoint::max()));
  }
  simulation.RunUntil(At(1200ms));
  Queries result;
  for (const size_t query : queries) {
    const PortSimulation::Block& block = simulation.block(query);
    result.lost += block.ended() ? 0 : 1;
    if (block.ended()) result.longest = std::max(result.longest, block.ended_at - block.submitted_at);
  }
  int64_t scanned = 0;
  for (const size_t scan : scan_blocks) scanned += simulation.block(scan).received_bytes;
  result.scan_mbps = Mbps(scanned, 1200ms);
  EXPECT_EQ(simulation.drops(), 0);
  return result;
}

TEST(QueriesBesideScansTest, AQueryWaitsForTheBytesInThePortAlone) {
  const nanoseconds alone = RunQueries(1000, 0).longest;
  for (const int64_t expected_bytes : {int64_t{1000}, kMegabyte}) {
    for (const size_t scans : {1, 4, 16}) {
      const Queries queries = RunQueries(expected_bytes, scans);
      EXPECT_EQ(queries.lost, 0) << expected_bytes << " beside " << scans;
      EXPECT_LE(queries.longest, alone + 4 * kDrain) << expected_bytes << " beside " << scans;
      EXPECT_GE(queries.scan_mbps, 85) << expected_bytes << " beside " << scans;
    }
  }
}

TEST(QueriesBesideScansTest, AShortDeadlineLosesNoQueryThatIsExpectedToBeLarge) {
  for (const nanoseconds timeout : {50ms, 150ms, 800ms}) {
    EXPECT_EQ(RunQueries(kMegabyte, 4, timeout).lost, 0) << timeout.count();
  }
}

// Each client scans again and again.
TEST(ScansTest, ToldAndUntoldScansHaveEqualShares) {
  PortSimulation simulation(Options());
  struct Client {
    int64_t expected_bytes;
    std::vector<size_t> scans;
  };
  std::vector<Client> clients{{kMegabyte, {}}, {1000, {}}};
  const auto scan = [&](Client& client, TimePoint at) {
    const PortSimulation::Response response{.bytes = kMegabyte, .expected_bytes = client.expected_bytes, .think = 1ms};
    client.scans.push_back(simulation.Submit(at, Responses(8, response)));
  };
  for (Client& client : clients) scan(client, At(0ms));
  for (TimePoint at = At(1ms); at < At(30s); at += 1ms) {
    simulation.RunUntil(at);
    for (Client& client : clients) {
      if (simulation.block(client.scans.back()).ended()) scan(client, at);
    }
  }
  int64_t bytes[2] = {};
  for (size_t i = 0; i < 2; ++i) {
    for (const size_t block : clients[i].scans) bytes[i] += simulation.block(block).received_bytes;
  }
  const auto ratio = static_cast<double>(bytes[0]) / static_cast<double>(bytes[1]);
  EXPECT_GT(ratio, 0.9);
  EXPECT_LT(ratio, 1.1);
}

// Clients of the interactive class have fan-outs of eight responses, and ask again as soon as one has ended. The other
// class has responses that wait for longer than any timer.
struct Interactive {
  double mbps;
  int64_t buffer_bytes;
  int clients;
  int64_t bytes;
  nanoseconds think;
};

// Returns the least rate of a second.
double LeastMbps(const Interactive& of, size_t streams) {
  LinkProfile port = TestPort();
  port.capacity_bytes_per_second = of.mbps * 1e6 / 8;
  port.buffer_bytes = of.buffer_bytes;
  ScheduleOptions options = Options();
  options.profile = port;
  options.classes = {{.name = "interactive", .weight = 100}, {.name = "batch", .weight = 1}};
  options.ready_bytes = int64_t{1} << 40;
  PortSimulation simulation(options, port);
  if (streams > 0) {
    simulation.Submit(At(0ms), Responses(streams, {.bytes = kMegabyte, .expected_bytes = kMegabyte}), 1);
  }
  const auto ask = [&] {
    const PortSimulation::Response response{.bytes = of.bytes, .expected_bytes = of.bytes, .think = of.think};
    return simulation.Submit(simulation.now(), Responses(8, response, 10'000), 0);
  };
  std::vector<size_t> fan_outs;
  for (int client = 0; client < of.clients; ++client) fan_outs.push_back(ask());
  const auto run_until = [&](TimePoint end) {
    for (TimePoint at = simulation.now(); at < end; at += 50us) {
      simulation.RunUntil(at);
      for (size_t& fan_out : fan_outs) fan_out = simulation.block(fan_out).ended() ? ask() : fan_out;
    }
  };
  const auto received = [&] { return simulation.schedule().ClassState(0).received_bytes; };
  run_until(At(500ms));
  double least = of.mbps;
  for (int second = 1; second <= 2; ++second) {
    const int64_t before = received();
    run_until(At(500ms + second * 1s));
    least = std::min(least, Mbps(received() - before, 1s));
  }
  EXPECT_EQ(simulation.drops(), 0);
  return least;
}

class HeavyClassTest : public ::testing::TestWithParam<Interactive> {};

TEST_P(HeavyClassTest, AClassWithWeightKeepsItsShareInEachSecond) {
  const double alone = LeastMbps(GetParam(), 0);
  EXPECT_GT(alone, 0.93 * GetParam().mbps);
  for (const size_t streams : {64, 2500})
    EXPECT_GE(LeastMbps(GetParam(), streams), 0.97 * 100 / 101 * alone) << streams;
}

// On each link, the last clients have the fewest bytes on their way.
INSTANTIATE_TEST_SUITE_P(
    Links, HeavyClassTest,
    ::testing::Values(Interactive{20, 32 * 1024, 16, 10'000, 0ms}, Interactive{20, 32 * 1024, 4, 2'000, 2ms},
                      Interactive{80, 48 * 1024, 16, 10'000, 0ms}, Interactive{80, 48 * 1024, 2, 10'000, 2ms},
                      Interactive{80, 48 * 1024, 4, 2'000, 0ms}, Interactive{1000, 128 * 1024, 4, 10'000, 0ms}),
    [](const auto& info) {
      return absl::StrFormat("%gMbps%dClients%dBytes", info.param.mbps, info.param.clients, info.param.bytes);
    });

// All requests of the heavy class wait from the beginning.
TEST(HeldStreamsTest, AClassWithWeightKeepsItsShareBesideThousandsOfResponsesThatWait) {
  ScheduleOptions options = Options();
  options.classes = {{.name = "interactive", .weight = 100}, {.name = "batch", .weight = 1}};
  options.ready_bytes = int64_t{1} << 40;
  PortSimulation simulation(options);
  simulation.Submit(At(0ms), Responses(1000, {.bytes = kMegabyte, .expected_bytes = kMegabyte}), 1);
  simulation.Submit(At(0ms), Responses(5000, {.bytes = 10'000, .expected_bytes = 10'000}, 2000), 0);
  const auto received = [&] { return simulation.schedule().ClassState(0).received_bytes; };
  simulation.RunUntil(At(100ms));
  for (int second = 0; second < 4; ++second) {
    const int64_t before = received();
    simulation.RunUntil(At(100ms + (second + 1) * 1s));
    EXPECT_GE(Mbps(received() - before, 1s), 0.97 * 100 / 101 * 98) << second;
  }
}

// One worker fails at once, 200 times a second, with details in its trailers. The others think for 10 ms.
TEST(ErrorsTest, DetailsOfOneWorkerCostTheOthersTheirBytesAlone) {
  for (const int64_t error_bytes : {0, 6000}) {
    PortSimulation simulation(Options());
    std::vector<size_t> blocks;
    for (int i = 0; i < 500; ++i) {
      const PortSimulation::Response response{.bytes = 10'000, .expected_bytes = 10'000, .think = 10ms};
      blocks.push_back(simulation.Submit(At(i * 5ms), Responses(15, response)));
      if (error_bytes == 0) continue;
      simulation.Submit(At(i * 5ms), Responses(1, {.expected_bytes = 10'000, .error_bytes = error_bytes}, 99));
    }
    simulation.RunUntil(At(2500ms));
    int64_t bytes = 0;
    for (const size_t block : blocks) bytes += simulation.block(block).received_bytes;
    const double error_mbps = 200.0 * 8e-6 * 1.07 * static_cast<double>(error_bytes);
    EXPECT_GE(Mbps(bytes, 2500ms), 0.95 * (92 - error_mbps)) << error_bytes;
  }
}

// Calls that hang before they are ready, on a link whose path matters.
TEST(HungCallsTest, TheOthersKeepTheirRate) {
  const auto rate = [](size_t hung) {
    ScheduleOptions options = Options();
    options.profile.capacity_bytes_per_second = 125e6;
    PortSimulation simulation(options, options.profile);
    for (uint32_t i = 0; i < hung; ++i) {
      simulation.Submit(At(0ms), Responses(1, {.expected_bytes = 10'000, .hangs = true}, 100 + i));
    }
    simulation.RunUntil(At(1s));
    const TimePoint begin = simulation.now();
    int64_t bytes = 0;
    for (TimePoint at = begin; at < begin + 500ms; bytes += 80'000) {
      at += simulation.Await(simulation.Submit(at, Responses(8, {.bytes = 10'000, .expected_bytes = 10'000})));
    }
    return Mbps(bytes, 500ms);
  };
  const double alone = rate(0);
  for (const size_t hung : {1, 40}) EXPECT_GE(rate(hung), 0.97 * alone) << hung;
}

// Bytes that wait at workers take memory there.
TEST(ReadyBytesTest, ResponsesThatWaitAtWorkersAreBounded) {
  PortSimulation simulation(Options());
  for (int i = 0; i < 1000; ++i) {
    simulation.Submit(At(0ms), Responses(48, {.bytes = kMegabyte, .expected_bytes = kMegabyte, .think = 1ms}));
  }
  simulation.RunUntil(At(10s));
  EXPECT_LE(simulation.most_ready_bytes(), Options().ready_bytes);
  EXPECT_GE(simulation.most_ready_bytes(), Options().ready_bytes / 4);
}

}  // namespace
}  // namespace sluice::testing

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/link/worker_table.h"
#include "tests/random_seed.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using TimePoint = WorkerTable::TimePoint;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int Between(int least, int most) { return std::uniform_int_distribution<int>(least, most)(engine_); }
  bool OneIn(int n) { return Between(1, n) == 1; }

 private:
  std::mt19937_64 engine_;
};

// SLUICE_SEED=... replays a run.
class WorkerTableRandomTest : public ::testing::Test {
 protected:
  std::string Seed() const { return absl::StrCat("SLUICE_SEED=", seed_); }

  const uint64_t seed_ = TakeRandomSeed().value;
};

struct Sum {
  int64_t losses_out_of_order = 0;
  int64_t losses_silent = 0;
  int64_t losses_paused = 0;
  int64_t rto_waits = 0;
  uint64_t out_of_order_packets = 0;

  void Add(const LinkSight& sight) {
    EXPECT_GE(sight.losses_out_of_order, 0);
    EXPECT_GE(sight.losses_silent, 0);
    EXPECT_GE(sight.losses_paused, 0);
    EXPECT_GE(sight.rto_waits, sight.losses_silent + sight.losses_paused);
    losses_out_of_order += sight.losses_out_of_order;
    losses_silent += sight.losses_silent;
    losses_paused += sight.losses_paused;
    rto_waits += sight.rto_waits;
    out_of_order_packets += sight.out_of_order_packets;
  }
};

LinkSight LookAt(WorkerTable& table, TimePoint now, const std::vector<WorkerTable::Socket>& sockets) {
  table.BeginLook(now, TimePoint(), TimePoint());
  table.LookAt(now, sockets);
  return table.EndLook();
}

std::string AddressOf(size_t worker) {
  return absl::StrCat("worker-", worker, ":20000");
}

// Simulates a worker and its TCP connection in steps of a millisecond. It serves one request after the other. The fate
// of each response is random.
class SimulatedWorker {
 public:
  SimulatedWorker(WorkerTable& table, size_t number, Random& random)
      : row_(table.Add(AddressOf(number))), random_(random) {
    socket_.inode = 1 + number;
  }

  void Step(TimePoint now) {
    if (!answer_.has_value()) {
      if (random_.OneIn(40)) Ask(now);
      return;
    }
    Answer& answer = *answer_;
    if (now >= answer.acknowledged) socket_.info.unacknowledged_packets = 0;
    const bool thinks = now >= answer.acknowledged && answer.left_bytes == answer.bytes;
    if (thinks && random_.OneIn(100)) Receive(17, now);  // a ping
    if (now < answer.next_packet) return;
    if (answer.left_bytes == answer.lost_bytes && answer.loss == Loss::kTail) {
      answer.next_packet = now + milliseconds(random_.Between(200, 230));
      answer.loss = Loss::kNone;
      return;
    }
    const int bytes = std::min(1448, answer.left_bytes - (answer.loss == Loss::kTail ? answer.lost_bytes : 0));
    if (answer.loss == Loss::kMiddle && answer.left_bytes < answer.bytes) {
      ++socket_.info.out_of_order_packets;
      ++out_of_order_packets;
      answer.loss = Loss::kNone;
    }
    Receive(bytes, now);
    answer.left_bytes -= bytes;
    if (load_.owing_calls > 0 && now - load_.owed_since >= WorkerLoad::kPause) ++load_.pauses;
    load_.owing_calls = answer.left_bytes > 0 ? 1 : 0;
    load_.owed_since = now;
    answer.next_packet = now + milliseconds(random_.Between(0, 10));
    if (answer.left_bytes > 0) return;
    --load_.out_calls;
    ++load_.ended_calls;
    answer_.reset();
  }

  WorkerTable::Socket See(TimePoint now) const {
    WorkerTable::Socket socket{row_, socket_, load_};
    socket.tcp.info.since_data_sent = absl::FromChrono(now - sent_);
    socket.tcp.info.since_data_received = absl::FromChrono(now - received_);
    return socket;
  }

  bool idle() const { return !answer_.has_value(); }
  const WorkerLoad& load() const { return load_; }
  size_t row() const { return row_; }

  // The true counts.
  int64_t asked = 0;
  int64_t rtos = 0;
  int64_t lost_in_the_middle = 0;
  uint64_t out_of_order_packets = 0;

 private:
  enum class Loss { kNone, kTail, kMiddle };
  struct Answer {
    int bytes = 0;  // on the wire
    int left_bytes = 0;
    int lost_bytes = 0;
    Loss loss = Loss::kNone;
    TimePoint acknowledged;
    TimePoint next_packet;
  };

  void Ask(TimePoint now) {
    ++asked;
    sent_ = now;
    socket_.info.unacknowledged_packets = 1;
    Answer answer{.bytes = random_.Between(3000, 20'000)};
    answer.left_bytes = answer.bytes;
    const int thinks = random_.OneIn(2) ? random_.Between(0, 5) : random_.Between(0, 400);
    answer.next_packet = now + milliseconds(thinks);
    // It is acknowledged with the response, or after TCP's delay.
    answer.acknowledged = now + milliseconds(std::min(thinks, 40));
    if (random_.OneIn(8)) LoseOf(answer, thinks);
    answer_ = answer;
    ++load_.out_calls;
  }

  void LoseOf(Answer& answer, int thinks) {
    if (random_.OneIn(2)) {
      answer.loss = Loss::kMiddle;
      ++lost_in_the_middle;
    } else if (thinks < 40 && random_.OneIn(2)) {
      // The whole response is lost, with the acknowledgement of the request.
      answer.next_packet += milliseconds(random_.Between(200, 230));
      answer.acknowledged = answer.next_packet;
      ++rtos;
    } else {
      answer.loss = Loss::kTail;
      answer.lost_bytes = random_.Between(1, answer.bytes - 2400);
      ++rtos;
    }
  }

  void Receive(int bytes, TimePoint now) {
    socket_.info.received_bytes += static_cast<uint64_t>(bytes);
    received_ = now;
  }

  const size_t row_;
  Random& random_;
  TcpSocket socket_;
  WorkerLoad load_;
  TimePoint sent_;
  TimePoint received_;
  std::optional<Answer> answer_;
};

// Looks are a little more than a tenth of a second apart, and take up to 3 ms, during which the workers continue.
TEST_F(WorkerTableRandomTest, FindsEveryTimeoutOnceAndNoneWhereNothingIsLost) {
  SCOPED_TRACE(Seed());
  Random random(seed_);
  WorkerTable table;
  TimePoint now = TimePoint() + std::chrono::hours(1);
  std::vector<SimulatedWorker> workers;
  for (size_t i = 0; i < 20; ++i) workers.emplace_back(table, i, random);
  Sum sum;
  std::vector<WorkerTable::Socket> sockets;
  TimePoint next_look = now;
  TimePoint look_began;
  TimePoint look_ends = TimePoint::max();
  const auto step = [&] {
    if (now >= next_look) {
      sockets.clear();
      for (const SimulatedWorker& worker : workers) sockets.push_back(worker.See(now));
      look_began = now;
      look_ends = now + milliseconds(random.Between(0, 3));
      next_look = now + milliseconds(random.Between(100, 105));
    }
    if (now >= look_ends) {
      sum.Add(LookAt(table, look_began, sockets));
      look_ends = TimePoint::max();
    }
    now += milliseconds(1);
  };
  const TimePoint end = now + std::chrono::seconds(60);
  bool idle = false;
  while (!idle) {
    idle = now >= end;
    for (SimulatedWorker& worker : workers) {
      if (now < end || !worker.idle()) worker.Step(now);
      idle = idle && worker.idle();
    }
    step();
  }
  for (const TimePoint last_looks = now + milliseconds(300); now < last_looks;) step();

  int64_t rtos = 0;
  int64_t lost_in_the_middle = 0;
  uint64_t out_of_order_packets = 0;
  const std::vector<WorkerSummary> summaries = table.Summaries([&](uint32_t id) { return workers[id - 1].load(); });
  for (const SimulatedWorker& worker : workers) {
    const WorkerSummary& summary = summaries.at(worker.row());
    EXPECT_EQ(summary.rtos, worker.rtos) << summary.address;
    EXPECT_LE(summary.losses, worker.rtos + worker.lost_in_the_middle) << summary.address;
    EXPECT_EQ(summary.in_flight, 0) << summary.address;
    EXPECT_GT(worker.asked, 50);
    rtos += worker.rtos;
    lost_in_the_middle += worker.lost_in_the_middle;
    out_of_order_packets += worker.out_of_order_packets;
  }
  EXPECT_GT(rtos, 20) << "nothing was tested";
  EXPECT_EQ(sum.rto_waits, rtos);
  EXPECT_LE(sum.losses_silent + sum.losses_paused, rtos);
  EXPECT_GT(sum.losses_paused, 0);
  // Some losses fall into one look with the previous response, and then count as one.
  EXPECT_LE(sum.losses_out_of_order, lost_in_the_middle);
  EXPECT_GE(sum.losses_out_of_order, lost_in_the_middle / 2);
  EXPECT_EQ(sum.out_of_order_packets, out_of_order_packets);
}

// Any calls and any values of the kernel, even impossible ones.
TEST_F(WorkerTableRandomTest, CountsAddUpWhateverHappens) {
  SCOPED_TRACE(Seed());
  Random random(seed_);
  WorkerTable table;
  TimePoint now = TimePoint() + std::chrono::hours(1);
  constexpr int kWorkers = 7;
  std::vector<int64_t> asked(kWorkers, 0);
  std::vector<WorkerLoad> loads(kWorkers);
  for (int i = 0; i < kWorkers; ++i) table.Add(AddressOf(static_cast<size_t>(i)));
  std::vector<WorkerTable::Socket> sockets;
  uint64_t inode = 0;
  Sum sum;
  uint64_t reported = 0;
  const auto finish = [&](size_t row) {
    --loads[row].out_calls;
    ++loads[row].ended_calls;
  };
  const auto summaries = [&] { return table.Summaries([&](uint32_t id) { return loads[id - 1]; }); };
  for (int step = 0; step < 20'000; ++step) {
    now += milliseconds(random.Between(0, 30));
    const auto row = static_cast<size_t>(random.Between(0, kWorkers - 1));
    if (random.OneIn(10)) sockets.push_back({row, {.inode = ++inode}, loads[row]});
    if (sockets.size() > 30) sockets.erase(sockets.begin() + random.Between(0, 29));
    for (WorkerTable::Socket& socket : sockets) {
      TcpInfo& info = socket.tcp.info;
      if (random.OneIn(3)) info.received_bytes += static_cast<uint64_t>(random.Between(0, 20'000));
      if (random.OneIn(10)) info.out_of_order_packets += static_cast<uint32_t>(random.Between(0, 3));
      info.unacknowledged_packets = random.OneIn(3) ? 1 : 0;
      info.since_data_sent = absl::Milliseconds(random.Between(0, 300));
      info.since_data_received = absl::Milliseconds(random.Between(0, 300));
    }
    if (random.OneIn(2)) {
      ++asked[row];
      ++loads[row].out_calls;
    } else if (loads[row].out_calls > 0) {
      finish(row);
    }
    loads[row].owing_calls = random.OneIn(2) ? 1 : 0;
    if (random.OneIn(20)) ++loads[row].pauses;
    loads[row].owed_since = now - milliseconds(random.Between(0, 300));
    for (WorkerTable::Socket& socket : sockets) socket.load = loads[socket.worker];
    if (random.OneIn(10)) {
      reported += table.OnReport(row, 1, {static_cast<uint64_t>(step), 0}).retransmits;
    }
    if (random.OneIn(4)) sum.Add(LookAt(table, now - milliseconds(random.Between(0, 5)), sockets));
  }
  for (size_t row = 0; row < kWorkers; ++row) {
    EXPECT_EQ(summaries().at(row).in_flight, loads[row].out_calls);
    while (loads[row].out_calls > 0) finish(row);
  }
  int64_t losses = 0;
  int64_t rtos = 0;
  for (size_t row = 0; row < kWorkers; ++row) {
    const WorkerSummary summary = summaries().at(row);
    EXPECT_EQ(summary.in_flight, 0);
    EXPECT_LE(summary.losses, asked[row]);
    losses += summary.losses;
    rtos += summary.rtos;
  }
  EXPECT_GT(rtos, 0) << "nothing was tested";
  EXPECT_EQ(sum.losses_out_of_order + sum.losses_silent + sum.losses_paused, losses);
  EXPECT_EQ(sum.rto_waits, rtos);
  EXPECT_LE(reported, 20'000u * kWorkers);
  EXPECT_GT(sum.out_of_order_packets, 0u);
}

}  // namespace
}  // namespace sluice

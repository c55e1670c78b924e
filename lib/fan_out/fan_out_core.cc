#include "lib/fan_out/fan_out_core.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "lib/fan_out/fan_out_run.h"

namespace sluice {

// One Connect: looks again and again, since most of a thousand handshakes end at about the same time.
struct FanOutCore::Connecting {
  std::shared_ptr<const WorkerSet> workers;
  TimePoint deadline;
  std::function<void(std::vector<size_t>)> on_done;
  TimerQueue::Id timer;
};

namespace {

constexpr std::chrono::milliseconds kConnectPoll(1);

}  // namespace

FanOutCore::FanOutCore(LinkCore& link, Callbacks& callbacks, std::shared_ptr<TlsContext> tls)
    : link_(link), callbacks_(callbacks), tls_(std::move(tls)), worker_history_(0) {}

FanOutCore::~FanOutCore() {
  for (const auto& connecting : connecting_) link_.timers().Clear(connecting->timer);
}

std::shared_ptr<const WorkerSet> FanOutCore::SetOf(const Addresses& addresses) {
  if (workers_ != nullptr && workers_->addresses == addresses) return workers_;
  auto set = std::make_shared<WorkerSet>();
  set->addresses = addresses;
  set->workers.reserve(addresses->size());
  for (const std::string& address : *addresses) {
    set->workers.push_back(link_.FindWorker(address, tls_));
    const size_t row = set->workers.back()->row();
    if (row >= worker_history_.workers()) worker_history_.Resize(row + 1);
  }
  return set;
}

void FanOutCore::SetWorkers(const Addresses& addresses) {
  workers_ = SetOf(addresses);
  if (!connects_all_ || closing()) return;
  for (const auto& worker : workers_->workers) worker->Connect();
}

std::vector<size_t> FanOutCore::OrderOf(const WorkerSet& workers, size_t primary, const std::vector<size_t>& replicas) {
  if (replicas.empty()) return {primary};
  std::vector<size_t> rows = {workers.workers[primary]->row()};
  std::multimap<size_t, size_t> by_row = {{rows.front(), primary}};  // one address may be listed twice
  for (size_t replica : replicas) {
    rows.push_back(workers.workers[replica]->row());
    by_row.emplace(rows.back(), replica);
  }
  std::vector<size_t> order;
  order.reserve(rows.size());
  for (size_t row : worker_history_.Order(link_.now(), std::move(rows)))
    order.push_back(by_row.extract(by_row.lower_bound(row)).mapped());
  return order;
}

void FanOutCore::Connect(absl::Duration timeout, std::function<void(std::vector<size_t>)> on_done) {
  connects_all_ = true;
  for (const auto& worker : workers_->workers) worker->Connect();
  connecting_.push_back(std::make_shared<Connecting>());
  Connecting& connecting = *connecting_.back();
  connecting.workers = workers_;
  connecting.deadline = link_.now() + absl::ToChronoNanoseconds(timeout);
  connecting.on_done = std::move(on_done);
  PollConnecting(std::prev(connecting_.end()));
}

void FanOutCore::PollConnecting(ConnectingList::iterator position) {
  Connecting& connecting = **position;
  std::vector<size_t> unconnected;
  for (size_t i = 0; i < connecting.workers->workers.size(); ++i) {
    if (!connecting.workers->workers[i]->connected()) unconnected.push_back(i);
  }
  const TimePoint now = link_.now();
  if (!unconnected.empty() && now < connecting.deadline && !closing()) {
    connecting.timer = link_.timers().Set(now + kConnectPoll, [this, position] { PollConnecting(position); });
    return;
  }
  const auto on_done = std::move(connecting.on_done);
  connecting_.erase(position);
  on_done(std::move(unconnected));
}

void FanOutCore::Close(absl::Status why, std::function<void()> on_idle) {
  why_closing_ = std::move(why);
  on_idle_ = std::move(on_idle);
  const auto runs = runs_;
  for (const auto& run : runs) run->Cancel(why_closing_);
  TellIfIdle();
}

void FanOutCore::Enter(std::shared_ptr<FanOutRun> run) {
  runs_.push_back(std::move(run));
}

void FanOutCore::Leave(FanOutRun& run) {
  const auto found =
      std::find_if(runs_.begin(), runs_.end(), [&run](const auto& known) { return known.get() == &run; });
  std::swap(*found, runs_.back());
  runs_.pop_back();
  TellIfIdle();
}

void FanOutCore::Release() {
  --held_;
  TellIfIdle();
}

// At the end of the turn: the last run may still be in what it calls.
void FanOutCore::TellIfIdle() {
  if (!closing() || !runs_.empty() || held_ > 0) return;
  link_.AtEndOfTurn([this] {
    if (!runs_.empty() || held_ > 0 || *on_idle_ == nullptr) return;
    std::exchange(*on_idle_, nullptr)();
  });
}

}  // namespace sluice

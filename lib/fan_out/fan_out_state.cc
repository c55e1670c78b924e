#include "lib/fan_out/fan_out_state.h"

#include <utility>

#include "lib/fan_out/fan_out_run.h"
#include "lib/net/clock.h"

namespace sluice {

// One Connect. It checks all workers when it begins and when it ends. It also checks them after each worker has been
// connected once, because connections may be lost in between. Rejected: to check every millisecond; with 65,536
// workers that takes the whole thread.
struct FanOutState::Connecting {
  struct Waiter final : ConnectedWaiter {
    void OnConnected() override { state->OnConnected(connecting); }

    FanOutState* state = nullptr;
    ConnectingList::iterator connecting;
  };

  std::shared_ptr<const WorkerSet> workers;
  std::vector<Waiter> waiters;  // one for each worker
  size_t waiting = 0;           // waiters that are linked
  std::function<void(std::vector<size_t>)> on_done;
  TimerQueue::Id timer;
};

namespace {

std::vector<size_t> Unconnected(const WorkerSet& set) {
  std::vector<size_t> unconnected;
  for (size_t worker = 0; worker < set.workers.size(); ++worker) {
    if (!set.workers[worker]->connected()) unconnected.push_back(worker);
  }
  return unconnected;
}

}  // namespace

FanOutState::FanOutState(LinkLoop& link, Callbacks& callbacks, std::shared_ptr<TlsContext> tls)
    : link_(link), callbacks_(callbacks), tls_(std::move(tls)), ejections_(link) {}

FanOutState::~FanOutState() {
  for (Connecting& connecting : connecting_) link_.timers().Clear(connecting.timer);
}

std::shared_ptr<const WorkerSet> FanOutState::SetOf(const Addresses& addresses) {
  if (workers_ != nullptr && workers_->addresses == addresses) return workers_;
  auto set = std::make_shared<WorkerSet>();
  set->addresses = addresses;
  set->workers.reserve(addresses->size());
  for (const std::string& address : *addresses) {
    set->workers.push_back(link_.workers().Find(address, tls_));
    const size_t row = set->workers.back()->row();
    worker_history_.Use(row, link_.worker_table().generation(row));
  }
  return set;
}

void FanOutState::SetWorkers(const Addresses& addresses) {
  std::shared_ptr<const WorkerSet> workers = SetOf(addresses);
  std::vector<size_t> rows;
  rows.reserve(workers->workers.size());
  for (const auto& worker : workers->workers) rows.push_back(worker->row());
  ejections_.SetWorkers(rows);
  workers_ = std::move(workers);
  if (!connects_all_ || closing()) return;
  for (const auto& worker : workers_->workers) worker->Connect();
}

std::vector<size_t> FanOutState::OrderOf(const WorkerSet& workers, size_t primary,
                                         const std::vector<size_t>& replicas) {
  if (replicas.empty()) return {primary};
  std::vector<size_t> rows = {workers.workers[primary]->row()};
  std::multimap<size_t, size_t> by_row = {{rows.front(), primary}};  // one address may be listed twice
  for (size_t replica : replicas) {
    rows.push_back(workers.workers[replica]->row());
    by_row.emplace(rows.back(), replica);
  }
  std::vector<size_t> order;
  order.reserve(rows.size());
  rows = worker_history_.Order(link_.now(), std::move(rows), [this](size_t row) { return ejections_.IsAvoided(row); });
  ejections_.OnChosen(rows.front());
  for (size_t row : rows) order.push_back(by_row.extract(by_row.lower_bound(row)).mapped());
  return order;
}

void FanOutState::Connect(absl::Duration timeout, std::function<void(std::vector<size_t>)> on_done) {
  connects_all_ = true;
  for (const auto& worker : workers_->workers) worker->Connect();
  const auto position = connecting_.emplace(connecting_.end());
  position->workers = workers_;
  position->waiters = std::vector<Connecting::Waiter>(workers_->workers.size());
  for (Connecting::Waiter& waiter : position->waiters) {
    waiter.state = this;
    waiter.connecting = position;
  }
  position->on_done = std::move(on_done);
  position->timer = link_.timers().Set(DeadlineAfter(link_.now(), timeout), [this, position] { EndConnect(position); });
  AwaitConnections(position);
}

void FanOutState::OnConnected(ConnectingList::iterator position) {
  if (--position->waiting == 0) AwaitConnections(position);
}

void FanOutState::AwaitConnections(ConnectingList::iterator position) {
  for (size_t worker : Unconnected(*position->workers)) {
    position->workers->workers[worker]->AwaitConnected(position->waiters[worker]);
    ++position->waiting;
  }
  if (position->waiting == 0 || closing()) EndConnect(position);
}

void FanOutState::EndConnect(ConnectingList::iterator position) {
  link_.timers().Clear(position->timer);
  std::vector<size_t> unconnected = Unconnected(*position->workers);
  const auto on_done = std::move(position->on_done);
  connecting_.erase(position);
  on_done(std::move(unconnected));
}

void FanOutState::Close(absl::Status why, std::function<void()> on_idle) {
  why_closing_ = std::move(why);
  on_idle_ = std::move(on_idle);
  while (!connecting_.empty()) EndConnect(connecting_.begin());
  const auto runs = runs_;
  for (const auto& run : runs) run->Cancel(why_closing_);
  TellIfIdle();
}

void FanOutState::Enter(std::shared_ptr<FanOutRun> run) {
  run->set_position(runs_.size());
  runs_.push_back(std::move(run));
}

void FanOutState::Leave(FanOutRun& run) {
  std::swap(runs_[run.position()], runs_.back());
  runs_[run.position()]->set_position(run.position());
  runs_.pop_back();
  TellIfIdle();
}

void FanOutState::Release() {
  --held_;
  TellIfIdle();
}

// Wait for the end of the turn: the last run may still be on the call stack.
void FanOutState::TellIfIdle() {
  if (!HasClosed()) return;
  link_.AtEndOfTurn([this] {
    if (!HasClosed() || *on_idle_ == nullptr) return;
    std::exchange(*on_idle_, nullptr)();
  });
}

}  // namespace sluice

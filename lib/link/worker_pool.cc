#include "lib/link/worker_pool.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "lib/link/link_loop.h"

namespace sluice {
namespace {

constexpr size_t kMinWorkersToSweep = 64;
constexpr std::chrono::seconds kLookAtListsEvery(1);
// A check takes a few microseconds, and the link grants nothing during that time.
constexpr size_t kCheckedAtOnce = 64;
constexpr std::chrono::milliseconds kCheckPause(1);

}  // namespace

WorkerPool::WorkerPool(LinkLoop& loop) : loop_(loop) {
  session_options_.stream_window_bytes = static_cast<uint32_t>(ResponseFlow::kFirstBytes);
}

std::shared_ptr<Worker> WorkerPool::Find(const std::string& target, std::shared_ptr<TlsContext> tls,
                                         const std::string& server_name) {
  // Sweep rarely: sweeping for each of ten thousand workers takes seconds.
  if (workers_.size() >= sweep_at_) {
    std::erase_if(workers_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max(kMinWorkersToSweep, 2 * workers_.size());
  }
  std::weak_ptr<Worker>& known = workers_[{target, server_name, tls.get()}];
  std::shared_ptr<Worker> worker = known.lock();
  if (worker == nullptr) {
    worker = std::shared_ptr<Worker>(new Worker(loop_, target, std::move(tls), server_name),
                                     [this](Worker* unused) { unused_.emplace_back(unused); });
    known = worker;
    if (worker->tls() != nullptr) UseTls();
  }
  return worker;
}

// A part of a response must then fill its packets including the TLS record: see LinkLoop::Reconfigure.
void WorkerPool::UseTls() {
  if (!std::exchange(uses_tls_, true)) loop_.Reconfigure(loop_.schedule().options()).IgnoreError();  // they are valid
}

absl::StatusOr<std::shared_ptr<TlsContext>> WorkerPool::FindTls(const TlsOptions& options) {
  std::erase_if(tls_contexts_, [](const auto& known) { return known.context.expired(); });
  for (const auto& known : tls_contexts_) {
    if (auto context = known.context.lock(); context->options() == options) return context;
  }
  auto made = TlsContext::Create(options);
  if (!made.ok()) return made;
  tls_contexts_.push_back({.context = *made, .files = (*made)->Current()});
  if (!options.crl_file.empty() && !std::exchange(looks_at_lists_, true)) LookAtListsIn(kLookAtListsEvery);
  return made;
}

void WorkerPool::LookAtListsIn(TimePoint::duration time) {
  loop_.timers().Set(loop_.now() + time, [this] { LookAtLists(); });
}

// Checks the connections only after files have changed.
void WorkerPool::LookAtLists() {
  std::erase_if(tls_contexts_, [](const auto& known) { return known.context.expired(); });
  looks_at_lists_ = !tls_contexts_.empty();
  if (!looks_at_lists_) return;
  for (KnownTls& known : tls_contexts_) {
    std::shared_ptr<SSL_CTX> files = known.context.lock()->Current();
    if (files == known.files) continue;
    known.files = std::move(files);
    checks_ = true;
    checked_.reset();
  }
  auto next = checked_.has_value() ? workers_.upper_bound(*checked_) : workers_.begin();
  for (size_t i = 0; checks_ && i < kCheckedAtOnce; ++i, ++next) {
    checks_ = next != workers_.end();
    if (!checks_) break;
    checked_ = next->first;
    if (const auto worker = next->second.lock()) worker->connections().CheckPeers();
  }
  LookAtListsIn(checks_ ? TimePoint::duration(kCheckPause) : TimePoint::duration(kLookAtListsEvery));
}

WorkerPool::TcpSlice WorkerPool::TcpSockets(const std::optional<Key>& after, size_t workers) {
  TcpSlice slice;
  if (!after.has_value()) tunnels_.splice(tunnels_.end(), looked_tunnels_);
  auto next = after.has_value() ? workers_.upper_bound(*after) : workers_.begin();
  for (; next != workers_.end(); ++next) {
    if (workers-- == 0) {
      slice.last = std::prev(next)->first;
      break;
    }
    if (const auto worker = next->second.lock()) worker->connections().AppendTcp(slice.sockets);
  }
  if (slice.last.has_value()) return slice;
  for (; !tunnels_.empty() && workers > 0; --workers) {
    ScheduledTunnel& tunnel = tunnels_.front();
    tunnels_.pop_front();
    if (tunnel.AppendTcp(slice.sockets)) looked_tunnels_.push_back(tunnel);
  }
  if (!tunnels_.empty()) slice.last = workers_.empty() ? Key() : std::prev(workers_.end())->first;
  return slice;
}

size_t WorkerPool::CountWaitingForStream() const {
  size_t calls = 0;
  for (const auto& [key, known] : workers_) {
    if (const auto worker = known.lock()) calls += worker->waiting_for_stream();
  }
  return calls;
}

void WorkerPool::CloseAll() {
  std::vector<std::shared_ptr<Worker>> workers;
  for (const auto& [key, known] : workers_) {
    if (auto worker = known.lock()) workers.push_back(std::move(worker));
  }
  for (const auto& worker : workers) worker->Close();
}

void WorkerPool::FreeUnused() {
  std::exchange(unused_, {}).clear();
}

}  // namespace sluice

#include "lib/link/worker_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lib/link/link_loop.h"

namespace sluice {
namespace {

constexpr size_t kMinWorkersToSweep = 64;

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
  std::erase_if(tls_contexts_, [](const auto& context) { return context.expired(); });
  for (const auto& known : tls_contexts_) {
    if (auto context = known.lock(); context->options() == options) return context;
  }
  auto made = TlsContext::Create(options);
  if (made.ok()) tls_contexts_.push_back(*made);
  return made;
}

WorkerPool::TcpSlice WorkerPool::TcpSockets(const std::optional<Key>& after, size_t workers) const {
  TcpSlice slice;
  auto next = after.has_value() ? workers_.upper_bound(*after) : workers_.begin();
  for (; next != workers_.end(); ++next) {
    if (workers-- == 0) {
      slice.last = std::prev(next)->first;
      break;
    }
    if (const auto worker = next->second.lock()) worker->AppendTcp(slice.sockets);
  }
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

#include "lib/net/look_up_threads.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr size_t kMaxNames = 65536;  // above it, names are forgotten when they have been looked up

}  // namespace

LookUpThreads::~LookUpThreads() {
  Stop();
  for (std::thread& thread : threads_) thread.join();
}

void LookUpThreads::Stop() {
  std::unordered_map<std::string, Name> dropped;  // destroyed without the lock
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    dropped.swap(names_);
    known_.clear();
    others_.clear();
  }
  changed_.notify_all();
}

void LookUpThreads::Run(const std::string& host, LookUp look_up) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopping_) return;
  Name& name = names_[host];
  name.waiting.push_back(std::move(look_up));
  if (!name.running && name.waiting.size() == 1) Queue(host, name);
  if (Ready() > idle_ && threads_.size() < kThreads) threads_.emplace_back([this] { Serve(); });
  changed_.notify_one();
}

void LookUpThreads::Queue(const std::string& host, const Name& name) {
  (name.known ? known_ : others_).push_back(host);
}

// The number of look-ups that may begin.
size_t LookUpThreads::Ready() const {
  const size_t room = kThreads - kForKnown - std::min(others_running_, kThreads - kForKnown);
  return known_.size() + std::min(others_.size(), room);
}

std::string LookUpThreads::Next() {
  std::deque<std::string>& queue = known_.empty() ? others_ : known_;
  std::string host = std::move(queue.front());
  queue.pop_front();
  return host;
}

void LookUpThreads::Serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [this] { return stopping_ || Ready() > 0; });
    --idle_;
    if (stopping_) return;
    const std::string host = Next();
    Name& begun = names_[host];
    LookUp look_up = std::move(begun.waiting.front());
    begun.waiting.pop_front();
    begun.running = true;
    const bool known = begun.known;
    if (!known) ++others_running_;
    lock.unlock();
    const std::optional<bool> found = look_up();
    look_up = nullptr;
    lock.lock();
    if (!known) --others_running_;
    const auto ended = names_.find(host);
    if (ended == names_.end()) continue;  // stopped
    Name& name = ended->second;
    name.running = false;
    name.known = found.value_or(name.known) && names_.size() <= kMaxNames;
    if (!name.waiting.empty()) {
      Queue(host, name);
    } else if (!name.known) {
      names_.erase(ended);
    }
    changed_.notify_one();
  }
}

}  // namespace sluice

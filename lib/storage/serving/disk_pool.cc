#include "lib/storage/serving/disk_pool.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace sluice {

DiskPool::~DiskPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status DiskPool::Silent() const {
  return absl::UnavailableError(absl::StrCat("the disk of ", folder_, " has not completed a read for ",
                                             absl::FormatDuration(absl::FromChrono(options_.deadline))));
}

void DiskPool::Submit(Read read, Done done) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (given_up_ == 0) {
      waiting_.push_back({std::move(read), std::move(done)});
      const bool all_busy = running_.size() + waiting_.size() > threads_.size();
      if (all_busy && threads_.size() < options_.threads) threads_.emplace_back([this] { Serve(); });
    }
  }
  if (done == nullptr) return changed_.notify_one();
  done(Silent());
}

void DiskPool::Serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    running_.push_back({.done = std::move(next.done), .began = options_.now()});
    const auto running = std::prev(running_.end());
    lock.unlock();
    absl::StatusOr<DiskBytes> bytes = next.read();
    lock.lock();
    const Done done = std::move(running->done);
    running_.erase(running);
    const bool answers_again = done == nullptr && --given_up_ == 0;
    lock.unlock();
    if (done != nullptr) done(std::move(bytes));
    if (answers_again && options_.on_state != nullptr) options_.on_state(folder_, absl::OkStatus());
    next = {};
    lock.lock();
  }
}

void DiskPool::Look() {
  std::vector<Done> failed;
  bool begins = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const TimePoint now = options_.now();
    for (Running& running : running_) {
      if (running.done == nullptr || now - running.began < options_.deadline) continue;
      begins = begins || given_up_ == 0;
      ++given_up_;
      failed.push_back(std::exchange(running.done, nullptr));
    }
    if (given_up_ > 0) {
      for (Waiting& waiting : std::exchange(waiting_, {})) failed.push_back(std::move(waiting.done));
    }
  }
  if (begins && options_.on_state != nullptr) options_.on_state(folder_, Silent());
  for (const Done& done : failed) done(Silent());
}

}  // namespace sluice

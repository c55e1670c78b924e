#include "lib/storage/serving/disk_reads.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/net/clock.h"

namespace sluice {

DiskReads::DiskReads(const StripeStore& store, DiskPool::Options options)
    : store_(store), options_(std::move(options)), others_("the data folder", options_) {
  watch_ = std::thread([this] { Watch(); });
  const absl::StatusOr<std::vector<uint32_t>> workers = store.Workers();
  if (!workers.ok()) return;  // the first read of each finds it
  for (const uint32_t worker : *workers) Add(worker);
}

DiskReads::~DiskReads() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  watch_.join();
}

void DiskReads::ReadRange(Range range, Observe observe, DiskPool::Done done) {
  const uint32_t worker = range.worker;
  if (const Folder* folder = Find(worker); folder != nullptr && folder->can_read_cached) {
    DiskBytes bytes;
    const TimePoint began = Now();
    if (store_.ReadCached(worker, range.file, range.replica, range.offset, range.length, range.check_length,
                          &bytes.data)) {
      observe(Now() - began);
      return done(std::move(bytes));
    }
  }
  Submit(
      worker,
      [&store = store_, range = std::move(range), observe = std::move(observe)]() -> absl::StatusOr<DiskBytes> {
        if (range.check_length > 0) {
          absl::Status there =
              store.CheckRange(range.worker, range.file, range.replica, range.offset, range.check_length);
          if (!there.ok()) return there;
        }
        DiskBytes bytes;
        const TimePoint began = Now();
        absl::Status read =
            store.Read(range.worker, range.file, range.replica, range.offset, range.length, &bytes.data);
        observe(Now() - began);
        if (!read.ok()) return read;
        return bytes;
      },
      std::move(done));
}

void DiskReads::ReadManifest(uint32_t worker, std::string file, uint64_t offset, uint32_t length, DiskPool::Done done) {
  Submit(
      worker,
      [&store = store_, worker, file = std::move(file), offset, length]() -> absl::StatusOr<DiskBytes> {
        DiskBytes bytes;
        const absl::StatusOr<uint64_t> total = store.ReadManifest(worker, file, offset, length, &bytes.data);
        if (!total.ok()) return total.status();
        bytes.total_bytes = *total;
        return bytes;
      },
      std::move(done));
}

void DiskReads::Submit(uint32_t worker, DiskPool::Read read, DiskPool::Done done) {
  if (Folder* folder = Find(worker); folder != nullptr) return folder->pool.Submit(std::move(read), std::move(done));
  others_.Submit(std::move(read), [this, worker, done = std::move(done)](absl::StatusOr<DiskBytes> bytes) {
    if (bytes.ok()) Add(worker);
    done(std::move(bytes));
  });
}

void DiskReads::Watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_.wait_for(lock, options_.deadline / 10, [this] { return stopping_; })) {
    std::vector<DiskPool*> pools = {&others_};
    for (const auto& [worker, folder] : folders_) pools.push_back(&folder->pool);
    lock.unlock();
    for (DiskPool* pool : pools) pool->Look();
    lock.lock();
  }
}

DiskReads::Folder* DiskReads::Find(uint32_t worker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = folders_.find(worker);
  return found == folders_.end() ? nullptr : found->second.get();
}

void DiskReads::Add(uint32_t worker) {
  auto folder = std::make_unique<Folder>(store_.FolderName(worker), store_.CanReadCached(worker), options_);
  const std::lock_guard<std::mutex> lock(mutex_);
  folders_.try_emplace(worker, std::move(folder));
}

}  // namespace sluice

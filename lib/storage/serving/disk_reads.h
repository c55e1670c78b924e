#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "lib/storage/serving/disk_pool.h"
#include "lib/storage/stripe/stripe_store.h"

namespace sluice {

// Reads stripes and manifests on threads of the data folder that has them, so that a disk that hangs stops no other one
// and no thread of gRPC. Bytes in the memory of the kernel are read at once: the threads would double the processor
// time of small SRUs. There is one for each process. Thread-safe. The store must outlive it.
class DiskReads {
 public:
  DiskReads(const StripeStore& store, DiskPool::Options options);
  ~DiskReads();

  // One range of a stripe.
  struct Range {
    uint32_t worker = 0;
    std::string file;
    uint32_t replica = 0;
    uint64_t offset = 0;
    uint32_t length = 0;
    uint32_t check_length = 0;  // above 0: only if the stripe has this many bytes from the offset
  };
  // `done` may be called within this call. It receives the errors of StripeStore, and Unavailable as DiskPool::Submit.
  // `observe` is called with the time that the disk took, if it was asked at all.
  using Observe = std::function<void(std::chrono::nanoseconds)>;
  void ReadRange(Range range, Observe observe, DiskPool::Done done);
  void ReadManifest(uint32_t worker, std::string file, uint64_t offset, uint32_t length, DiskPool::Done done);

 private:
  struct Folder {
    explicit Folder(std::string name, bool cached, const DiskPool::Options& options)
        : can_read_cached(cached), pool(std::move(name), options) {}
    const bool can_read_cached;
    DiskPool pool;
  };

  void Submit(uint32_t worker, DiskPool::Read read, DiskPool::Done done);
  Folder* Find(uint32_t worker);
  void Add(uint32_t worker);
  void Watch();

  const StripeStore& store_;
  const DiskPool::Options options_;
  std::mutex mutex_;
  std::map<uint32_t, std::unique_ptr<Folder>> folders_;  // guarded by mutex_; by worker; never removed
  // Reads of workers that had no folder when they were last read. A client can invent any number of these.
  DiskPool others_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread watch_;      // gives up reads that take too long
};

}  // namespace sluice

#pragma once

#include <memory>
#include <utility>

#include "sluice/block_reader.h"

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace boost::asio {
class io_context;
}

namespace sluice {

// The reader on which new reads begin. Reads that are under way hold the one that they began on. There is one for each
// server. Thread-safe. The context must outlive it.
class CurrentReader {
 public:
  explicit CurrentReader(boost::asio::io_context& context) : context_(context) {}

  // Returns null if there is none yet.
  std::shared_ptr<BlockReader> Get() const {
    absl::MutexLock lock(&mutex_);
    return reader_;
  }

  // The reader before it is destroyed after its last read, on the thread of the context, since that takes a while and
  // the last read ends on a thread of gRPC.
  void Replace(std::unique_ptr<BlockReader> reader);

 private:
  boost::asio::io_context& context_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<BlockReader> reader_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

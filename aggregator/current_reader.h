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

// The reader for new reads. Each read in progress keeps the reader that it started with. There is one for each server.
// Thread-safe. The context must outlive it.
class CurrentReader {
 public:
  explicit CurrentReader(boost::asio::io_context& context) : context_(context) {}

  // Returns null if there is no reader yet.
  std::shared_ptr<BlockReader> Get() const {
    absl::MutexLock lock(&mutex_);
    return reader_;
  }

  // The previous reader is destroyed after its last read. This happens on the thread of the context, since it takes a
  // while and the last read ends on a thread of gRPC.
  void Replace(std::unique_ptr<BlockReader> reader);

 private:
  boost::asio::io_context& context_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<BlockReader> reader_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

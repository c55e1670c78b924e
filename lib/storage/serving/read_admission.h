#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/intrusive/list.hpp>

#include "sluice/time_point.h"

#include "absl/status/status.h"
#include "lib/storage/serving/answer_memory.h"

namespace sluice {

// Admits the reads of a BlockServer to its memory. If a read finds too little, the reads whose clients have taken
// nothing for the stall timeout end, so that they cannot refuse all others for ever. There is one for each BlockServer.
// Thread-safe.
class ReadAdmission {
 public:
  // One read, from its request until its bytes are gone. Thread-safe.
  class Read : public boost::intrusive::list_base_hook<> {
   public:
    // `end` ends the read. It must not wait, nor destroy this object before it returns.
    Read(std::shared_ptr<ReadAdmission> all, std::function<void()> end, TimePoint now);
    ~Read();
    Read(const Read&) = delete;
    Read& operator=(const Read&) = delete;

    // Gives back the memory that this read took before, and takes `bytes`. Returns ResourceExhausted if too little
    // memory is left.
    absl::Status Admit(uint64_t bytes, TimePoint now);
    void OnTaken(TimePoint now);  // the client has taken a part
    void OnOver();                // `end` is not called from now on

   private:
    friend class ReadAdmission;

    const std::shared_ptr<ReadAdmission> all_;
    AnswerMemory::Share share_;
    // Guarded by all_->mutex_.
    std::function<void()> end_;
    TimePoint taken_at_;
  };

  ReadAdmission(uint64_t max_bytes, std::chrono::nanoseconds stall_timeout)
      : memory_(max_bytes), stall_timeout_(stall_timeout) {}

 private:
  void EndStalled(TimePoint now);

  AnswerMemory memory_;
  const std::chrono::nanoseconds stall_timeout_;
  std::mutex mutex_;
  boost::intrusive::list<Read> reads_;  // guarded by mutex_
};

}  // namespace sluice

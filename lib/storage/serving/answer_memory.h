#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/intrusive/list.hpp>

#include "sluice/time_point.h"

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace sluice {

// Bounds the memory of the responses that a service holds, including responses that clients do not read: gRPC's quota
// does not count these. If a response finds too little, the calls end whose clients have taken nothing of an offered
// message for the stall timeout. Otherwise such clients could refuse all others for ever. There is one for each
// service. Thread-safe.
//
// The responses of one client take at most four times what is left, so one client alone has at most four fifths, and a
// further one always finds some memory. This needs no number of clients and no share to configure (dynamic thresholds:
// Choudhury and Hahne, 1998). While nothing is taken, one response may take all.
class AnswerMemory {
 public:
  static constexpr uint64_t kMostTimesLeft = 4;
  // If a call finds too little memory, calls whose clients have taken nothing for this time are cancelled.
  static constexpr std::chrono::seconds kStallTimeout{30};

  // The memory of one response (or one piece, if it is sent in pieces) from the request until the last byte has left.
  // Thread-safe.
  class Share : public boost::intrusive::list_base_hook<> {
   public:
    // `client` is the same for all responses of a client (ClientName). `end` cancels the call. It must not wait, nor
    // destroy this object before it returns.
    Share(std::shared_ptr<AnswerMemory> memory, std::string client, std::function<void()> end)
        : memory_(std::move(memory)), client_(std::move(client)), end_(std::move(end)) {}
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Gives back the memory that this share took before, and takes `bytes`. Returns ResourceExhausted if too little
    // memory is left, or the client has its part.
    absl::Status Take(uint64_t bytes, TimePoint now);
    void OnOffered(TimePoint now);  // a message waits for the client
    void OnTaken();                 // the client has taken it
    void OnOver();                  // `end` is not called from now on

   private:
    friend class AnswerMemory;
    static constexpr TimePoint kNotOffered = TimePoint::max();

    const std::shared_ptr<AnswerMemory> memory_;
    const std::string client_;
    // Guarded by memory_->mutex_.
    std::function<void()> end_;
    uint64_t bytes_ = 0;  // above 0: in memory_->shares_
    TimePoint offered_at_ = kNotOffered;
  };

  explicit AnswerMemory(uint64_t max_bytes, std::chrono::nanoseconds stall_timeout = kStallTimeout)
      : max_bytes_(max_bytes), stall_timeout_(stall_timeout) {}

 private:
  absl::Status CheckRoom(const std::string& client, uint64_t bytes) const;
  void GiveBack(Share& share);
  void EndStalled(TimePoint now);

  const uint64_t max_bytes_;
  const std::chrono::nanoseconds stall_timeout_;
  std::mutex mutex_;
  // Guarded by mutex_.
  uint64_t used_bytes_ = 0;
  absl::flat_hash_map<std::string, uint64_t> client_bytes_;  // without zeros
  boost::intrusive::list<Share> shares_;
};

}  // namespace sluice

#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "sluice/v1/block_service.grpc.pb.h"

#include "lib/storage/blocks/reader_source.h"
#include "lib/storage/serving/answer_memory.h"

namespace sluice {

// The BlockService of an aggregator, over a BlockReader. There is one for each server. Thread-safe. Each read is a
// reactor of its own, which asks its stream for the next part when gRPC has taken the one before. So a slow client
// holds up only its own read, and a client that goes away cancels its SRUs.
class BlockServer final : public v1::BlockService::CallbackService {
 public:
  // The default for the bytes that all reads together may hold for their clients. A read holds two segments, however
  // slow its client is.
  static constexpr uint64_t kMaxHeldBytes = uint64_t{1} << 30;

  // Each read asks `source` for its reader, and ends with Unavailable if there is none. A read ends with
  // ResourceExhausted if it would hold more than `max_held_bytes` together with those under way.
  explicit BlockServer(ReaderSource source, uint64_t max_held_bytes = kMaxHeldBytes)
      : source_(std::move(source)), held_(max_held_bytes) {}

  // Sets BlockReader::Options::segment_bytes of the readers to come.
  void SetSegmentBytes(int64_t bytes) { segment_bytes_ = bytes; }

  grpc::ServerWriteReactor<v1::ReadResponse>* Read(grpc::CallbackServerContext* context,
                                                   const v1::ReadRequest* request) override;

 private:
  const ReaderSource source_;
  AnswerMemory held_;
  std::atomic<int64_t> segment_bytes_ = BlockReader::Options().segment_bytes;
};

}  // namespace sluice

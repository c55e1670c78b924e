#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "sluice/v1/block_service.grpc.pb.h"

#include "lib/storage/blocks/reader_source.h"
#include "lib/storage/serving/access_control.h"
#include "lib/storage/serving/answer_memory.h"

namespace sluice {

// The BlockService of an aggregator, over a BlockReader. There is one for each server. Thread-safe. Each read has its
// own reactor, which requests the next part from its stream when gRPC has taken the previous part. A slow client
// therefore delays only its own read, and a disconnected client cancels its SRUs.
class BlockServer final : public v1::BlockService::CallbackService {
 public:
  // The default for the bytes that all reads together may hold for their clients. Each read holds two segments, even if
  // its client is slow.
  static constexpr uint64_t kMaxHeldBytes = uint64_t{1} << 30;

  // Each read gets its reader from `source`, and ends with Unavailable if that returns null. A read ends with
  // ResourceExhausted if it and the current reads would hold more than `max_held_bytes`. It has then requested no SRU.
  // `access` is null: each call is allowed.
  explicit BlockServer(ReaderSource source, uint64_t max_held_bytes = kMaxHeldBytes,
                       std::shared_ptr<AccessControl> access = nullptr)
      : source_(std::move(source)),
        access_(std::move(access)),
        memory_(std::make_shared<AnswerMemory>(max_held_bytes)) {}

  // Sets BlockReader::Options::segment_bytes of future readers.
  void SetSegmentBytes(int64_t bytes) { segment_bytes_ = bytes; }

  grpc::ServerWriteReactor<v1::ReadResponse>* Read(grpc::CallbackServerContext* context,
                                                   const v1::ReadRequest* request) override;

 private:
  const ReaderSource source_;
  const std::shared_ptr<AccessControl> access_;  // null: each call is allowed
  const std::shared_ptr<AnswerMemory> memory_;   // also for reads that have just ended
  std::atomic<int64_t> segment_bytes_ = BlockReader::Options().segment_bytes;
};

}  // namespace sluice

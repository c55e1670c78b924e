#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "sluice/v1/block_service.grpc.pb.h"

#include "lib/blocks/reader_source.h"
#include "lib/serving/answer_memory.h"

namespace sluice {

// BlockService over a BlockReader: what an aggregator serves to its clients. One a server; thread-safe. Each read is a
// reactor of its own that asks its stream for the next part when gRPC has taken the one before, so a slow client holds
// its own read back and nothing else; a client that goes away cancels its SRUs.
class BlockServer final : public v1::BlockService::CallbackService {
 public:
  // What all reads together may hold for their clients, in bytes, by default. A read holds two segments, however slow
  // its client is.
  static constexpr uint64_t kMaxHeldBytes = uint64_t{1} << 30;

  // Each read asks for its reader. Without one it is Unavailable. A read that would hold more than `max_held_bytes`
  // together with those under way is ResourceExhausted.
  explicit BlockServer(ReaderSource source, uint64_t max_held_bytes = kMaxHeldBytes)
      : source_(std::move(source)), held_(max_held_bytes) {}

  // Of the readers to come: BlockReader::Options::segment_bytes.
  void SetSegmentBytes(int64_t bytes) { segment_bytes_ = bytes; }

  grpc::ServerWriteReactor<v1::ReadResponse>* Read(grpc::CallbackServerContext* context,
                                                   const v1::ReadRequest* request) override;

 private:
  const ReaderSource source_;
  AnswerMemory held_;
  std::atomic<int64_t> segment_bytes_ = BlockReader::Options().segment_bytes;
};

}  // namespace sluice

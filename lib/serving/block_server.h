#pragma once

#include <utility>

#include "sluice/v1/block_service.grpc.pb.h"

#include "lib/blocks/reader_source.h"

namespace sluice {

// BlockService over a BlockReader: what an aggregator serves to its clients. One a server; thread-safe. Each read is a
// reactor of its own that asks its stream for the next part when gRPC has taken the one before, so a slow client holds
// its own read back and nothing else; a client that goes away cancels its SRUs.
class BlockServer final : public v1::BlockService::CallbackService {
 public:
  // Each read asks for its reader. Without one it is Unavailable.
  explicit BlockServer(ReaderSource source) : source_(std::move(source)) {}

  grpc::ServerWriteReactor<v1::ReadResponse>* Read(grpc::CallbackServerContext* context,
                                                   const v1::ReadRequest* request) override;

 private:
  const ReaderSource source_;
};

}  // namespace sluice

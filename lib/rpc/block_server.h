#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "sluice/block_reader.h"
#include "sluice/v1/block_service.grpc.pb.h"

namespace sluice {

// BlockService over a BlockReader: what an aggregator serves to its clients. One a server; thread-safe. Each read is a
// reactor of its own that asks its stream for the next part when gRPC has taken the one before, so a slow client holds
// its own read back and nothing else; a client that goes away cancels its SRUs.
class BlockServer final : public v1::BlockService::CallbackService {
 public:
  // The reader of the moment, asked for by each read, which holds it until its end. Null: reads are Unavailable.
  using Source = std::function<std::shared_ptr<BlockReader>()>;
  explicit BlockServer(Source source) : source_(std::move(source)) {}
  explicit BlockServer(BlockReader& reader);  // outlives the server

  grpc::ServerWriteReactor<v1::ReadResponse>* Read(grpc::CallbackServerContext* context,
                                                   const v1::ReadRequest* request) override;

 private:
  const Source source_;
};

}  // namespace sluice

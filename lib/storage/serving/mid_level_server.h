#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "sluice/v1/sru_service.grpc.pb.h"

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/storage/blocks/block_cache.h"
#include "lib/storage/serving/access_control.h"
#include "lib/storage/serving/answer_memory.h"
#include "lib/storage/serving/worker_metrics.h"
#include "lib/tcp/tcp_report.h"

namespace sluice {

// The SruService of a mid-level aggregator, which is a worker to the level above. The stripes and the manifest of a
// file at this level are files of the level below (see lib/storage/stripe/stripe_name.h). They are read through the
// block cache, and no thread waits for them. A piece of an SRU is sent when its bytes have arrived from below. The next
// piece is read when gRPC has taken the previous one, so a slow client costs one piece of memory. There is one for each
// process. Thread-safe. Its arguments must outlive the grpc::Server that it is registered with.
class MidLevelServer final : public v1::SruService::CallbackService {
 public:
  struct Options {
    // The part of the time until the caller's deadline that is reserved for sending the response up and for a replica.
    // The reader has its own limit for each block.
    absl::Duration deadline_reserve = absl::Milliseconds(5);
    // Responses beyond this are refused with RESOURCE_EXHAUSTED.
    uint64_t max_answer_bytes = 256 << 20;
    std::chrono::nanoseconds stall_timeout = AnswerMemory::kStallTimeout;
    std::shared_ptr<AccessControl> access = nullptr;  // null: each call is allowed
  };
  MidLevelServer(BlockCache& cache, WorkerMetrics& metrics, TcpReports& reports, const Options& options)
      : cache_(cache),
        metrics_(metrics),
        reports_(reports),
        options_(options),
        answers_(std::make_shared<AnswerMemory>(options.max_answer_bytes, options.stall_timeout)) {}

  grpc::ServerWriteReactor<v1::ReadSruResponse>* ReadSru(grpc::CallbackServerContext* context,
                                                         const v1::ReadSruRequest* request) override;
  grpc::ServerUnaryReactor* ReadManifest(grpc::CallbackServerContext* context, const v1::ReadManifestRequest* request,
                                         v1::ReadManifestResponse* response) override;

 private:
  class SruCall;
  class ManifestCall;

  template <class RpcRequest>
  absl::StatusOr<BlockCache::Request> RequestBelow(const grpc::CallbackServerContext& context,
                                                   const RpcRequest& request) const;

  BlockCache& cache_;
  WorkerMetrics& metrics_;
  TcpReports& reports_;
  const Options options_;
  const std::shared_ptr<AnswerMemory> answers_;
};

}  // namespace sluice

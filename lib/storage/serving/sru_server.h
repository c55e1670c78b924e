#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "sluice/v1/sru_service.grpc.pb.h"

#include "lib/storage/serving/access_control.h"
#include "lib/storage/serving/answer_memory.h"
#include "lib/storage/serving/disk_reads.h"
#include "lib/storage/serving/think_time.h"
#include "lib/storage/serving/worker_metrics.h"
#include "lib/storage/stripe/stripe_store.h"
#include "lib/tcp/tcp_report.h"

namespace boost::asio {
class io_context;
}

namespace sluice {

// The SruService over the stripes of one store. A slow client costs the memory of the next piece of its SRU, and of the
// previous piece within gRPC. Disks are read on threads of their own: see DiskReads. There is one for each process, for
// all of its workers. Thread-safe. The store, the metrics, the reports and the context must outlive the grpc::Server
// that it is registered with. The context must run until then.
class SruServer : public v1::SruService::CallbackService {
 public:
  struct Options {
    // The delay before the first message of an SRU, without a waiting thread. Above 0 only to test slow workers.
    ThinkTime::Options think_time;
    // Responses beyond this are refused with RESOURCE_EXHAUSTED.
    uint64_t max_answer_bytes = 256 << 20;
    std::chrono::nanoseconds stall_timeout = AnswerMemory::kStallTimeout;
    std::shared_ptr<AccessControl> access = nullptr;  // null: each call is allowed
    DiskPool::Options disk;                           // the threads of each worker's folder
  };
  SruServer(const StripeStore& store, WorkerMetrics& metrics, TcpReports& reports, boost::asio::io_context& context,
            const Options& options);

  grpc::ServerWriteReactor<v1::ReadSruResponse>* ReadSru(grpc::CallbackServerContext* context,
                                                         const v1::ReadSruRequest* request) override;
  grpc::ServerUnaryReactor* ReadManifest(grpc::CallbackServerContext* context, const v1::ReadManifestRequest* request,
                                         v1::ReadManifestResponse* response) override;

 private:
  class SruCall;
  class ManifestCall;

  WorkerMetrics& metrics_;
  TcpReports& reports_;
  boost::asio::io_context& context_;
  const Options options_;
  ThinkTime think_time_;
  const std::shared_ptr<AnswerMemory> answers_;
  DiskReads disk_;
};

}  // namespace sluice

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sluice/v1/probe_service.grpc.pb.h"

#include "absl/status/statusor.h"
#include "lib/storage/serving/access_control.h"
#include "lib/storage/serving/answer_memory.h"
#include "lib/tcp/socket_diag.h"

namespace boost::asio {
class io_context;
}

namespace sluice {

inline constexpr uint32_t kMaxProbePayloadBytes = 1 << 20;

// The ProbeService of a worker, for sluice-calibrate. It costs a worker no more than reads of SRUs: sizes, memory and
// waiting calls are bounded, and one thread queries the kernel. There is one for each process. Thread-safe. The context
// must outlive the grpc::Server that this is registered with, and run until then, on one thread.
class ProbeServer : public v1::ProbeService::CallbackService {
 public:
  struct Options {
    uint64_t max_answer_bytes = 64 << 20;  // responses beyond this are refused with RESOURCE_EXHAUSTED
    std::chrono::nanoseconds stall_timeout = AnswerMemory::kStallTimeout;
    std::shared_ptr<AccessControl> access = nullptr;  // null: each call is allowed
    // The maximum number of GetTcpCounters that wait for the kernel; further calls are refused as well.
    int max_counter_calls = 256;
  };
  ProbeServer(boost::asio::io_context& context, const Options& options)
      : context_(context),
        options_(options),
        answers_(std::make_shared<AnswerMemory>(options.max_answer_bytes, options.stall_timeout)) {}

  grpc::ServerUnaryReactor* Probe(grpc::CallbackServerContext* context, const v1::ProbeRequest* request,
                                  v1::ProbeResponse* response) override;
  grpc::ServerUnaryReactor* GetTcpCounters(grpc::CallbackServerContext* context,
                                           const v1::GetTcpCountersRequest* request,
                                           v1::GetTcpCountersResponse* response) override;

 private:
  class ProbeCall;
  class CountersCall;

  // Call it on the context's thread.
  absl::StatusOr<std::vector<TcpSocket>> ConnectionsFrom(const TcpEndpoint& peer);

  boost::asio::io_context& context_;
  const Options options_;
  const std::shared_ptr<AnswerMemory> answers_;
  std::atomic<int> counter_calls_ = 0;
  std::optional<SocketDiag> socket_diag_;  // opened at its first use, on the context's thread only
};

}  // namespace sluice

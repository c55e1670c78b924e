#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "sluice/v1/probe_service.grpc.pb.h"

#include "absl/status/statusor.h"
#include "lib/serving/answer_memory.h"
#include "lib/telemetry/socket_diag.h"

namespace boost::asio {
class io_context;
}

namespace sluice {

inline constexpr uint32_t kMaxProbePayloadBytes = 1 << 20;

// The ProbeService of a worker, for sluice-calibrate. Gives away no more than a read of an SRU does: sizes, memory and
// waiting calls are bounded, and the kernel is asked by one thread. One a process; thread-safe. The context outlives
// the grpc::Server that it is registered with, and runs until then, on one thread.
class ProbeServer : public v1::ProbeService::CallbackService {
 public:
  struct Options {
    uint64_t max_answer_bytes = 64 << 20;  // what comes on top is refused as RESOURCE_EXHAUSTED
    int max_counter_calls = 256;           // GetTcpCounters that wait for the kernel; likewise
  };
  ProbeServer(boost::asio::io_context& context, const Options& options)
      : context_(context), options_(options), answers_(options.max_answer_bytes) {}

  grpc::ServerUnaryReactor* Probe(grpc::CallbackServerContext* context, const v1::ProbeRequest* request,
                                  v1::ProbeResponse* response) override;
  grpc::ServerUnaryReactor* GetTcpCounters(grpc::CallbackServerContext* context,
                                           const v1::GetTcpCountersRequest* request,
                                           v1::GetTcpCountersResponse* response) override;

 private:
  class ProbeCall;
  class CountersCall;

  // On the context's thread.
  absl::StatusOr<std::vector<TcpSocket>> ConnectionsFrom(const TcpEndpoint& peer);

  boost::asio::io_context& context_;
  const Options options_;
  AnswerMemory answers_;
  std::atomic<int> counter_calls_ = 0;
  std::optional<SocketDiag> socket_diag_;  // opened when it is first asked for; of the context's thread
};

}  // namespace sluice

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <grpcpp/channel.h>

#include "sluice/v1/block_service.grpc.pb.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/channel_security.h"

namespace sluice {

// Returns InvalidArgument if the address of an aggregator is neither host:port nor unix:PATH, nor a form of them that
// gRPC takes.
absl::Status ValidateAggregator(const std::string& address);

// Reads through an aggregator's BlockService, and checks what comes: that the parts are in order without gaps or
// overlaps, their checksums, and the summary at the end. Thread-safe.
class BlockClient {
 public:
  // Receives the parts in the order of the file. An error that it returns ends the read.
  struct Sink {
    std::function<absl::Status(const v1::ReadHeader&)> on_header;
    std::function<absl::Status(uint64_t offset, std::string_view data)> on_data;
    std::function<absl::Status(const v1::MissingRange&)> on_missing;
  };

  explicit BlockClient(const std::string& address, const ChannelSecurity& security = {});

  // Blocks until the read has ended. Returns the errors of BlockService.Read, and DataLoss for an answer that is not
  // sound. Tries a read that is Unavailable before any of it has come again, five times in all, and then returns what
  // ExplainUnreachable says.
  absl::StatusOr<v1::ReadSummary> Read(const v1::ReadRequest& request, absl::Duration timeout, const Sink& sink);

 private:
  const std::string address_;
  const ChannelSecurity security_;
  const std::unique_ptr<v1::BlockService::Stub> stub_;
};

}  // namespace sluice

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

// Reads through an aggregator's BlockService, and checks the received data: the parts are in order without gaps or
// overlaps, their checksums match, and a summary ends the read. Thread-safe.
class BlockClient {
 public:
  // Receives the parts in the order of the file. If it returns an error, the read ends.
  struct Sink {
    std::function<absl::Status(const v1::ReadHeader&)> on_header;
    std::function<absl::Status(uint64_t offset, std::string_view data)> on_data;
    std::function<absl::Status(const v1::MissingRange&)> on_missing;
  };

  explicit BlockClient(const std::string& address, const ChannelSecurity& security = {});

  // Blocks until the read has ended. Returns the errors of BlockService.Read, and DataLoss for an invalid response. If
  // a read is Unavailable before its first part, it is retried, with five attempts in total. Then Read returns the
  // result of ExplainUnreachable.
  absl::StatusOr<v1::ReadSummary> Read(const v1::ReadRequest& request, absl::Duration timeout, const Sink& sink);

 private:
  const std::string address_;
  const ChannelSecurity security_;
  const std::unique_ptr<v1::BlockService::Stub> stub_;
};

}  // namespace sluice

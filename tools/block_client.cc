#include "tools/block_client.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/net/worker_address.h"
#include "lib/storage/stripe/crc32c.h"
#include "tools/unreachable.h"

namespace sluice {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(5);  // time to find out why there is no connection

// Checks one read: whether each part follows the previous one.
class ReadCheck {
 public:
  explicit ReadCheck(const BlockClient::Sink& sink) : sink_(sink) {}

  absl::Status Accept(const v1::ReadResponse& response) {
    if (summary_) return absl::DataLossError("the aggregator sent more after its summary");
    if (!header_ && !response.has_header()) return absl::DataLossError("the aggregator did not send a header first");
    switch (response.part_case()) {
      case v1::ReadResponse::kHeader:
        return Begin(response.header());
      case v1::ReadResponse::kChunk:
        return Data(response.chunk());
      case v1::ReadResponse::kMissing:
        if (absl::Status status = Advance(response.missing().offset(), response.missing().length()); !status.ok()) {
          return status;
        }
        return sink_.on_missing(response.missing());
      case v1::ReadResponse::kSummary:
        return End(response.summary());
      default:
        return absl::DataLossError("the aggregator sent a part that this client does not know");
    }
  }

  bool begun() const { return header_.has_value(); }

  absl::StatusOr<v1::ReadSummary> Summary() const {
    if (!summary_) return absl::DataLossError("the aggregator ended without a summary");
    return *summary_;
  }

 private:
  absl::Status Begin(const v1::ReadHeader& header) {
    if (header_) return absl::DataLossError("the aggregator sent two headers");
    if (header.block_bytes() == 0 || header.offset() > header.file_bytes() ||
        header.length() > header.file_bytes() - header.offset()) {
      return absl::DataLossError(absl::StrCat("the aggregator sent a header that is not sound: ", header.length(),
                                              " bytes from ", header.offset(), " of ", header.file_bytes(),
                                              ", in blocks of ", header.block_bytes()));
    }
    header_ = header;
    next_ = header.offset();
    return sink_.on_header(header);
  }

  absl::Status Data(const v1::ReadChunk& chunk) {
    if (Crc32c(chunk.data()) != chunk.crc32c()) {
      return absl::DataLossError(absl::StrCat("CRC32C does not match for the chunk at offset ", chunk.offset()));
    }
    if (absl::Status status = Advance(chunk.offset(), chunk.data().size()); !status.ok()) return status;
    read_ += chunk.data().size();
    return sink_.on_data(chunk.offset(), chunk.data());
  }

  absl::Status Advance(uint64_t offset, uint64_t length) {
    const uint64_t left = header_->offset() + header_->length() - next_;
    if (offset != next_ || length > left) {
      return absl::DataLossError(absl::StrCat("the aggregator sent offset ", offset, " and ", length,
                                              " bytes; expected offset ", next_, " and at most ", left));
    }
    next_ += length;
    return absl::OkStatus();
  }

  absl::Status End(const v1::ReadSummary& summary) {
    if (next_ != header_->offset() + header_->length() || summary.bytes_read() != read_) {
      return absl::DataLossError(absl::StrCat("the aggregator ended at offset ", next_, " after ", read_,
                                              " bytes; expected offset ", header_->offset() + header_->length(),
                                              " after ", summary.bytes_read()));
    }
    summary_ = summary;
    return absl::OkStatus();
  }

  const BlockClient::Sink& sink_;
  std::optional<v1::ReadHeader> header_;
  std::optional<v1::ReadSummary> summary_;
  uint64_t next_ = 0;
  uint64_t read_ = 0;
};

std::shared_ptr<grpc::Channel> ConnectTo(const std::string& address, const ChannelSecurity& security) {
  grpc::ChannelArguments arguments;
  // Retry a read if the aggregator goes away before the header has arrived. If the name has several addresses, the
  // retry goes to another aggregator. gRPC does not retry after the first part, since the output may have been written.
  // Also retry on CANCELLED, even though this client did not cancel: the read arrived just as the server began to shut
  // down.
  arguments.SetServiceConfigJSON(R"({
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [{
      "name": [{"service": "sluice.v1.BlockService"}],
      "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
                      "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"]}
    }]
  })");
  security.AddTo(arguments);
  return grpc::CreateCustomChannel(address, security.credentials(), arguments);
}

}  // namespace

absl::Status ValidateAggregator(const std::string& address) {
  if (ValidateWorkerAddress(address).ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("aggregator: \"", address, "\" is not host:port or unix:PATH"));
}

BlockClient::BlockClient(const std::string& address, const ChannelSecurity& security)
    : address_(address), security_(security), stub_(v1::BlockService::NewStub(ConnectTo(address, security))) {}

absl::StatusOr<v1::ReadSummary> BlockClient::Read(const v1::ReadRequest& request, absl::Duration timeout,
                                                  const Sink& sink) {
  grpc::ClientContext context;
  constexpr absl::Duration kForever = absl::Hours(24 * 365);  // the range of the wall clock ends not much later
  if (timeout < kForever) {
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
  }
  const auto reader = stub_->Read(&context, request);
  ReadCheck check(sink);
  absl::Status status;
  v1::ReadResponse response;
  while (status.ok() && reader->Read(&response)) status = check.Accept(response);
  if (!status.ok()) context.TryCancel();
  const grpc::Status ended = reader->Finish();
  if (!status.ok()) return status;
  if (ended.ok()) return check.Summary();
  status = absl::Status(static_cast<absl::StatusCode>(ended.error_code()), ended.error_message());
  if (absl::IsUnimplemented(status) && status.message().empty()) {
    return absl::UnimplementedError(
        absl::StrCat(address_, " is not an aggregator: it does not have the method to read blocks"));
  }
  // gRPC's own text names neither the server nor the time.
  if (absl::IsDeadlineExceeded(status) && status.message() == "Deadline Exceeded") {
    return absl::DeadlineExceededError(
        absl::StrCat(address_, check.begun() ? " has not sent the whole response" : " has not responded", " within ",
                     absl::FormatDuration(timeout)));
  }
  if (!absl::IsUnavailable(status) || check.begun()) return status;
  const absl::Duration left = absl::FromChrono(context.deadline() - std::chrono::system_clock::now());
  return ExplainUnreachable(status, address_, security_.tls(), std::min(left, kPatience));
}

}  // namespace sluice

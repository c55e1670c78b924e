#include "lib/grpc_wire/response_reader.h"

#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/metadata_fields.h"
#include "lib/grpc_wire/status_mapping.h"

namespace sluice {

ResponseReader::ResponseReader(const Options& options)
    : options_(options),
      messages_(options.max_message_bytes, options.server_streaming ? std::numeric_limits<int64_t>::max() : 1,
                options.buffers) {}

void ResponseReader::OnHeaders(HeaderList headers, bool end_stream) {
  if (ended_ || failed()) return;
  if (headers_came_) {
    ReadTrailers(std::move(headers), end_stream);
  } else {
    ReadHead(std::move(headers), end_stream);
  }
}

void ResponseReader::ReadHead(HeaderList headers, bool end_stream) {
  headers_came_ = true;
  ended_ = end_stream;
  // A response with only trailers has no initial metadata.
  for (HeaderField& field : headers) ReadField(std::move(field), end_stream ? trailing_metadata_ : initial_metadata_);
  if (end_stream) return;
  if (http_status_ != "200" || !IsGrpcContentType(content_type_)) {
    // grpc-status takes precedence, but OK here cannot be the end of the call.
    absl::Status status = grpc_status_.has_value() ? ParseStatus(*grpc_status_, grpc_message_) : absl::OkStatus();
    return Fail(status.ok() ? HttpStatus() : std::move(status));
  }
  if (absl::Status status = messages_.SetEncoding(encoding_); !status.ok()) {
    // Map the error: in gRPC's compression.md a server returns Unimplemented, and a client Internal.
    Fail(absl::InternalError(status.message()));
  }
}

void ResponseReader::ReadTrailers(HeaderList headers, bool end_stream) {
  if (!end_stream) return Fail(absl::InternalError("a second header block came without the end of the stream"));
  ended_ = true;
  ForgetStatus();
  for (HeaderField& field : headers) ReadField(std::move(field), trailing_metadata_);
}

void ResponseReader::ReadField(HeaderField&& field, Metadata& metadata) {
  if (field.name == "grpc-status") {
    grpc_status_ = std::move(field.value);
  } else if (field.name == "grpc-message") {
    grpc_message_ = std::move(field.value);
  } else if (field.name == "grpc-status-details-bin") {
    DecodeBinary(field.value, status_details_);
  } else if (field.name == ":status") {
    http_status_ = std::move(field.value);
  } else if (field.name == "content-type") {
    content_type_ = std::move(field.value);
  } else if (field.name == "grpc-encoding") {
    encoding_ = std::move(field.value);
  } else {
    AppendMetadata(std::move(field), metadata);
  }
}

void ResponseReader::OnData(absl::string_view bytes, bool end_stream) {
  if (ended_ || failed()) return;
  if (!headers_came_) return Fail(absl::InternalError("DATA came before the headers of the response"));
  ended_ = end_stream;
  if (!bytes.empty()) ForgetStatus();
  absl::Status status = messages_.Read(bytes);
  if (absl::IsResourceExhausted(status)) {
    // Name the client's limit: otherwise the worker seems to have run out of a resource.
    status = absl::ResourceExhaustedError(absl::StrCat(status.message(), ", this client's max_response_bytes"));
  }
  if (!status.ok()) Fail(std::move(status));
}

void ResponseReader::ForgetStatus() {
  grpc_status_.reset();
  grpc_message_.clear();
  status_details_.clear();
}

void ResponseReader::Fail(absl::Status status) {
  failure_ = std::move(status);
}

RpcEnd ResponseReader::End(StreamEnd end) {
  RpcEnd result;
  if (failed()) {
    result.status = failure_;
  } else if (ended_) {
    result.status = ResponseStatus(result.status_details);
  } else {
    result.status = CutStatus(end);
    // A worker that has begun to respond has processed the request, regardless of its status.
    result.unhandled = end.kind == StreamEnd::Kind::kUnhandled && !headers_came_;
  }
  result.initial_metadata = std::move(initial_metadata_);
  result.trailing_metadata = std::move(trailing_metadata_);
  return result;
}

absl::Status ResponseReader::ResponseStatus(std::string& details) {
  if (grpc_status_.has_value()) {
    absl::Status status = ParseStatus(*grpc_status_, grpc_message_);
    if (!status.ok()) {
      details = std::move(status_details_);
      return status;
    }
  }
  if (messages_.in_message()) {
    return absl::InternalError(
        absl::StrCat("a message was cut off; ", messages_.pending_message_bytes(), " bytes of it did not come"));
  }
  if (!grpc_status_.has_value()) return HttpStatus();
  if (!options_.server_streaming && messages_.messages() == 0) {
    return absl::UnimplementedError("grpc-status is 0, but no message came");
  }
  details = std::move(status_details_);
  return absl::OkStatus();
}

absl::Status ResponseReader::HttpStatus() const {
  int number = 0;
  if (!absl::SimpleAtoi(http_status_, &number)) number = 0;
  return absl::Status(CodeOfHttpStatus(number),
                      absl::StrCat("no grpc-status came; HTTP status \"", Snippet(http_status_), "\", content-type \"",
                                   Snippet(content_type_), "\""));
}

absl::Status ResponseReader::CutStatus(StreamEnd end) const {
  switch (end.kind) {
    case StreamEnd::Kind::kReset:
      if (end.exceeded_header_list_bytes > 0) {
        return absl::ResourceExhaustedError(absl::StrCat("headers of the response are larger than this client's",
                                                         " max_header_list_bytes: ", end.exceeded_header_list_bytes));
      }
      return absl::Status(CodeOfReset(end.error), absl::StrCat("stream was reset with ", NameOf(end.error), " (",
                                                               static_cast<uint32_t>(end.error), ")"));
    case StreamEnd::Kind::kUnhandled:
      return absl::UnavailableError("worker did not take the request");
    case StreamEnd::Kind::kLost:
      return absl::UnavailableError(
          absl::StrCat("connection was lost before the response was complete", end.why.empty() ? "" : ": ", end.why));
    case StreamEnd::Kind::kComplete:
      break;
  }
  return absl::InternalError("stream closed before the response was complete");
}

}  // namespace sluice

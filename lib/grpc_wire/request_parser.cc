#include "lib/grpc_wire/request_parser.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/metadata_fields.h"
#include "lib/grpc_wire/response_head.h"
#include "lib/grpc_wire/timeout.h"

namespace sluice {
namespace {

// Headers that ParseProtocolFields checks after it has read all headers.
struct Checked {
  std::string method;
  std::string content_type;
};

absl::Status ReadField(const HeaderField& field, ReceivedRequestHead& head, Checked& checked) {
  if (field.name == ":method") {
    checked.method = field.value;
  } else if (field.name == ":scheme") {
    head.tls = field.value == "https";
  } else if (field.name == ":path") {
    head.path = field.value;
  } else if (field.name == ":authority" || (field.name == "host" && head.authority.empty())) {
    head.authority = field.value;
  } else if (field.name == "content-type") {
    checked.content_type = field.value;
  } else if (field.name == "grpc-timeout") {
    const std::optional<absl::Duration> timeout = ParseTimeout(field.value);
    if (!timeout.has_value()) {
      return absl::InternalError(
          absl::StrCat("grpc-timeout \"", Snippet(field.value), "\" is not one to eight digits and a unit"));
    }
    head.timeout = *timeout;
  } else if (field.name == "grpc-encoding") {
    head.encoding = field.value;
  } else if (field.name == "grpc-accept-encoding") {
    head.accept_encoding = field.value;
  } else if (field.name == "user-agent") {
    head.user_agent = field.value;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ReceivedRequestHead> ParseRequestHead(HeaderList headers) {
  absl::StatusOr<ReceivedRequestHead> head = ParseProtocolFields(headers);
  if (!head.ok()) return head;
  for (HeaderField& field : headers) AppendMetadata(std::move(field), head->metadata);
  return head;
}

absl::StatusOr<ReceivedRequestHead> ParseProtocolFields(const HeaderList& headers) {
  ReceivedRequestHead head;
  Checked checked;
  absl::Status status;
  for (const HeaderField& field : headers) status.Update(ReadField(field, head, checked));
  if (!IsGrpcContentType(checked.content_type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("content-type \"", Snippet(checked.content_type), "\" is not application/grpc"));
  }
  if (checked.method != "POST") {
    return absl::UnimplementedError(absl::StrCat(":method \"", Snippet(checked.method), "\" is not POST"));
  }
  if (!absl::StartsWith(head.path, "/")) {
    return absl::InternalError(absl::StrCat(":path \"", Snippet(head.path), "\" does not begin with \"/\""));
  }
  if (!status.ok()) return status;
  return head;
}

HeaderList ToRefusal(const absl::Status& refusal) {
  constexpr int kBadRequest = 400;
  constexpr int kMethodNotAllowed = 405;
  constexpr int kUnsupportedMediaType = 415;
  const int http_status = absl::IsInvalidArgument(refusal) ? kUnsupportedMediaType
                          : absl::IsUnimplemented(refusal) ? kMethodNotAllowed
                                                           : kBadRequest;
  return ToTrailersOnly(refusal, "", {}, http_status);
}

}  // namespace sluice

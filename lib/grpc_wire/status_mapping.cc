#include "lib/grpc_wire/status_mapping.h"

#include <array>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/metadata_fields.h"
#include "lib/grpc_wire/percent_encoding.h"

namespace sluice {
namespace {

constexpr std::array<absl::string_view, 14> kErrorNames = {"NO_ERROR",
                                                           "PROTOCOL_ERROR",
                                                           "INTERNAL_ERROR",
                                                           "FLOW_CONTROL_ERROR",
                                                           "SETTINGS_TIMEOUT",
                                                           "STREAM_CLOSED",
                                                           "FRAME_SIZE_ERROR",
                                                           "REFUSED_STREAM",
                                                           "CANCEL",
                                                           "COMPRESSION_ERROR",
                                                           "CONNECT_ERROR",
                                                           "ENHANCE_YOUR_CALM",
                                                           "INADEQUATE_SECURITY",
                                                           "HTTP_1_1_REQUIRED"};

constexpr auto kInadequateSecurity = static_cast<Http2Error>(12);

}  // namespace

absl::StatusCode CodeOfHttpStatus(int http_status) {
  switch (http_status) {
    case 400:
    case 431:
      return absl::StatusCode::kInternal;
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kUnimplemented;
    case 429:
    case 502:
    case 503:
    case 504:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kUnknown;
  }
}

absl::StatusCode CodeOfReset(Http2Error error) {
  if (error == kInadequateSecurity) return absl::StatusCode::kPermissionDenied;
  switch (error) {
    case Http2Error::kRefusedStream:
      return absl::StatusCode::kUnavailable;
    case Http2Error::kCancel:
      return absl::StatusCode::kCancelled;
    case Http2Error::kEnhanceYourCalm:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::string_view NameOf(Http2Error error) {
  const auto number = static_cast<uint32_t>(error);
  return number < kErrorNames.size() ? kErrorNames[number] : "unknown";
}

absl::Status ParseStatus(absl::string_view code, absl::string_view message) {
  constexpr int kLastCode = 16;
  int number = -1;
  const bool is_number = !code.empty() && absl::ascii_isdigit(code[0]) && absl::SimpleAtoi(code, &number);
  std::string decoded = PercentDecode(message);
  if (is_number && number <= kLastCode) return absl::Status(static_cast<absl::StatusCode>(number), decoded);
  return absl::UnknownError(absl::StrCat("grpc-status \"", Snippet(code), "\" is not a number from 0 to ", kLastCode,
                                         decoded.empty() ? "" : "; grpc-message: ", decoded));
}

}  // namespace sluice

#include "lib/proxy/forwarded_head.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sluice/endpoint.h"
#include "sluice/plan.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/grpc_wire/metadata_fields.h"
#include "lib/grpc_wire/request_parser.h"
#include "lib/grpc_wire/timeout.h"

namespace sluice {
namespace {

constexpr size_t kMaxBlockBytes = 64;

// Headers of one hop (RFC 9110, section 7.6.1), and headers that ToHeaders sets again. gRPC requires "te: trailers" on
// every hop.
constexpr std::array<absl::string_view, 11> kHopFields = {
    ":authority",          ":method",          ":path", ":scheme", "connection", "grpc-timeout", "host", "keep-alive",
    "proxy-authorization", "proxy-connection", "te"};

// By which proxies, meshes and load balancers tell workers who the client is: names, and beginnings of names.
constexpr std::array<absl::string_view, 10> kIdentityFields = {"forwarded",
                                                               "remote-user",
                                                               "true-client-ip",
                                                               "x-anonymous-consumer",
                                                               "x-arr-clientcert",
                                                               "x-client-ip",
                                                               "x-envoy-external-address",
                                                               "x-envoy-internal",
                                                               "x-goog-iap-jwt-assertion",
                                                               "x-real-ip"};
constexpr std::array<absl::string_view, 18> kIdentityPrefixes = {"cf-",
                                                                 "client-cert",  // RFC 9440
                                                                 "l5d-",
                                                                 "sluice-",
                                                                 "ssl-client-",  // ingress-nginx
                                                                 "x-amzn-mtls-",
                                                                 "x-amzn-oidc-",
                                                                 "x-auth-request-",  // oauth2-proxy
                                                                 "x-client-cert",
                                                                 "x-consumer-",  // Kong
                                                                 "x-credential-",
                                                                 "x-envoy-downstream-service-",
                                                                 "x-envoy-peer-metadata",
                                                                 "x-forwarded-",
                                                                 "x-goog-authenticated-user-",
                                                                 "x-ms-client-principal",  // Azure
                                                                 "x-remote-",
                                                                 "x-ssl-client-"};

bool IsIdentityField(absl::string_view name) {
  return std::find(kIdentityFields.begin(), kIdentityFields.end(), name) != kIdentityFields.end() ||
         std::any_of(kIdentityPrefixes.begin(), kIdentityPrefixes.end(),
                     [name](absl::string_view prefix) { return absl::StartsWith(name, prefix); });
}

bool IsHopField(absl::string_view name) {
  return std::find(kHopFields.begin(), kHopFields.end(), name) != kHopFields.end();
}

absl::Status ReadNumber(const HeaderField& field, int64_t least, int64_t most, int64_t& number) {
  if (absl::SimpleAtoi(field.value, &number) && number >= least && number <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field.name, " \"", Snippet(field.value), "\" is not a number from ", least, " to ", most));
}

// Adds a "-bin" header for each of its joined values. The proxy encodes the values again: if a value is not base64,
// gRPC's servers before 1.53 cut the connection (CVE-2023-32732), with the calls of all other clients on it.
absl::Status AddBinary(const HeaderField& field, HeaderList& fields) {
  for (const absl::string_view part : absl::StrSplit(field.value, ',')) {
    std::string bytes;
    if (!DecodeBinary(part, bytes)) {
      return absl::InvalidArgumentError(absl::StrCat(field.name, " \"", Snippet(part), "\" is not base64"));
    }
    fields.push_back({field.name, EncodeBinary(bytes)});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ForwardedHead> ParseForwardedHead(HeaderList headers, absl::string_view worker_header) {
  absl::StatusOr<ReceivedRequestHead> parsed = ParseProtocolFields(headers);
  if (!parsed.ok()) return parsed.status();
  ForwardedHead head{.authority = std::move(parsed->authority), .path = std::move(parsed->path)};
  head.timeout = parsed->timeout;
  head.end_to_end.reserve(headers.size());
  absl::Status status;
  for (HeaderField& field : headers) {
    const bool names_worker = !worker_header.empty() && field.name == worker_header;
    if (names_worker) head.worker = field.value;
    if (field.name == kBlockField) {
      head.block = std::move(field.value);
    } else if (field.name == kClassField) {
      head.traffic_class = std::move(field.value);
    } else if (field.name == kWeightField) {
      status.Update(ReadNumber(field, 1, kMaxWeight, head.calls));
    } else if (field.name == kResponseBytesField) {
      status.Update(ReadNumber(field, 0, kMaxResponseBytes, head.response_bytes.emplace()));
    } else if (field.name == kMaxAttemptsField) {
      int64_t attempts = 0;
      status.Update(ReadNumber(field, 1, kMostAttempts, attempts));
      head.max_attempts = static_cast<size_t>(attempts);
    } else if (field.name == "via") {
      absl::StrAppend(&head.via, head.via.empty() ? "" : ", ", field.value);
    } else if (IsIdentityField(field.name) && !names_worker) {
      continue;
    } else if (IsBinaryKey(field.name)) {
      status.Update(AddBinary(field, head.end_to_end));
    } else if (!IsHopField(field.name)) {
      head.end_to_end.push_back(std::move(field));
    }
  }
  if (head.block.size() > kMaxBlockBytes) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat(kBlockField, " has ", head.block.size(), " bytes; it has at most ", kMaxBlockBytes)));
  }
  if (!status.ok()) return status;
  return head;
}

absl::Status AddVia(ForwardedHead& head, const std::string& proxy) {
  if (absl::StrContains(head.via, proxy)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the call has come back to this proxy, so the address of its worker leads here; via is \"",
                     Snippet(head.via), "\""));
  }
  absl::StrAppend(&head.via, head.via.empty() ? "" : ", ", "2 ", proxy);
  return absl::OkStatus();
}

HeaderList ToHeaders(const ForwardedHead& head, const std::string& authority, bool tls, absl::Duration timeout) {
  constexpr size_t kMaxOfOneHop = 8;  // headers before end_to_end
  HeaderList fields;
  fields.reserve(kMaxOfOneHop + head.end_to_end.size());
  fields.push_back({":method", "POST"});
  fields.push_back({":scheme", tls ? "https" : "http"});
  fields.push_back({":path", head.path});
  fields.push_back({":authority", authority});
  fields.push_back({"te", "trailers"});
  if (timeout != absl::InfiniteDuration()) fields.push_back({"grpc-timeout", FormatTimeout(timeout)});
  if (!head.via.empty()) fields.push_back({"via", head.via});
  if (!head.client.empty()) fields.push_back({kClientField, head.client});
  fields.insert(fields.end(), head.end_to_end.begin(), head.end_to_end.end());
  return fields;
}

std::string HeaderValue(absl::string_view name, const HeaderList& headers) {
  const auto found =
      std::find_if(headers.begin(), headers.end(), [name](const HeaderField& field) { return field.name == name; });
  return found == headers.end() ? std::string() : found->value;
}

}  // namespace sluice

#include "lib/grpc_wire/metadata_fields.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace sluice {
namespace {

constexpr std::array<absl::string_view, 18> kProtocolFields = {"connection",
                                                               "content-length",
                                                               "content-type",
                                                               "grpc-accept-encoding",
                                                               "grpc-encoding",
                                                               "grpc-message",
                                                               "grpc-message-type",
                                                               "grpc-status",
                                                               "grpc-status-details-bin",
                                                               "grpc-timeout",
                                                               "host",
                                                               "keep-alive",
                                                               "proxy-connection",
                                                               "te",
                                                               "trailer",
                                                               "transfer-encoding",
                                                               "upgrade",
                                                               "user-agent"};

constexpr std::array<absl::string_view, 5> kSecrets = {"authorization", "cookie", "proxy-authorization", "set-cookie",
                                                       "x-api-key"};

bool IsPrintable(char c) {
  return c >= 0x20 && c <= 0x7e;
}

}  // namespace

bool IsBinaryKey(absl::string_view key) {
  return absl::EndsWith(key, "-bin");
}

bool IsMetadataKey(absl::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_' || c == '-' || c == '.';
  });
}

bool IsMetadataText(absl::string_view value) {
  return std::all_of(value.begin(), value.end(), IsPrintable);
}

bool IsProtocolField(absl::string_view name) {
  return absl::StartsWith(name, ":") ||
         std::find(kProtocolFields.begin(), kProtocolFields.end(), name) != kProtocolFields.end();
}

std::string EncodeBinary(absl::string_view bytes) {
  std::string text = absl::Base64Escape(bytes);
  while (!text.empty() && text.back() == '=') text.pop_back();
  return text;
}

bool DecodeBinary(absl::string_view text, std::string& bytes) {
  return absl::Base64Unescape(text, &bytes);
}

void AppendFields(const Metadata& metadata, HeaderList& fields) {
  for (const auto& [key, value] : metadata) {
    const bool secret = std::find(kSecrets.begin(), kSecrets.end(), key) != kSecrets.end();
    fields.push_back({key, IsBinaryKey(key) ? EncodeBinary(value) : value, secret});
  }
}

void AppendMetadata(HeaderField&& field, Metadata& metadata) {
  if (IsProtocolField(field.name) || !IsMetadataKey(field.name)) return;
  if (!IsBinaryKey(field.name)) {
    if (!IsMetadataText(field.value)) return;
    absl::StripAsciiWhitespace(&field.value);
    metadata.emplace_back(std::move(field.name), std::move(field.value));
    return;
  }
  for (const absl::string_view part : absl::StrSplit(field.value, ',')) {
    std::string bytes;
    if (DecodeBinary(part, bytes)) metadata.emplace_back(field.name, std::move(bytes));
  }
}

bool IsGrpcContentType(absl::string_view value) {
  constexpr absl::string_view kType = "application/grpc";
  if (!absl::StartsWithIgnoreCase(value, kType)) return false;
  value.remove_prefix(kType.size());
  return value.empty() || value[0] == '+' || value[0] == ';';
}

std::string Snippet(absl::string_view text) {
  std::string snippet(text.substr(0, 64));
  std::replace_if(
      snippet.begin(), snippet.end(), [](char c) { return !IsPrintable(c); }, '?');
  return snippet;
}

}  // namespace sluice

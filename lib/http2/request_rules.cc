#include "lib/http2/request_rules.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <nghttp2/nghttp2.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace sluice {
namespace {

// RFC 9113, section 8.2.2.
constexpr std::array<absl::string_view, 5> kConnectionFields = {"connection", "keep-alive", "proxy-connection",
                                                                "transfer-encoding", "upgrade"};

// Calls a check of nghttp2, which returns 0 if the text is not valid.
bool Passes(int (*check)(const uint8_t*, size_t), absl::string_view text) {
  return check(reinterpret_cast<const uint8_t*>(text.data()), text.size()) != 0;
}

bool IsVisible(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isgraph(c); });
}

// RFC 3986, section 3.1.
bool IsScheme(absl::string_view text) {
  return !text.empty() && absl::ascii_isalpha(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return absl::ascii_isalnum(c) || c == '+' || c == '-' || c == '.'; });
}

}  // namespace

bool RequestRules::OnHeader(absl::string_view name, absl::string_view value) {
  if (!Passes(nghttp2_check_header_name, name)) return false;
  if (absl::StartsWith(name, ":")) return OnPseudoHeader(name, value);
  had_regular_ = true;
  if (!Passes(name == "host" ? nghttp2_check_authority : nghttp2_check_header_value, value)) return false;
  if (name == "host") return !std::exchange(has_host_, true) && !value.empty();
  if (name == "content-length") return OnContentLength(value);
  if (name == "te") return absl::EqualsIgnoreCase(value, "trailers");
  return std::find(kConnectionFields.begin(), kConnectionFields.end(), name) == kConnectionFields.end();
}

bool RequestRules::OnPseudoHeader(absl::string_view name, absl::string_view value) {
  if (headers_ended_ || had_regular_) return false;
  if (name == ":authority") return !std::exchange(has_authority_, true) && IsVisible(value);
  if (name == ":method") {
    is_connect_ = value == "CONNECT";
    is_options_ = value == "OPTIONS";
    return !std::exchange(has_method_, true) && Passes(nghttp2_check_method, value);
  }
  if (name == ":scheme") {
    is_http_ = absl::EqualsIgnoreCase(value, "http") || absl::EqualsIgnoreCase(value, "https");
    return !std::exchange(has_scheme_, true) && IsScheme(value);
  }
  if (name == ":path") {
    path_is_rooted_ = absl::StartsWith(value, "/");
    path_is_asterisk_ = value == "*";
    return !std::exchange(has_path_, true) && !value.empty() && Passes(nghttp2_check_path, value);
  }
  return false;  // also :protocol: the session does not offer RFC 8441
}

bool RequestRules::OnContentLength(absl::string_view value) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  if (content_length_.has_value() || value.empty()) return false;
  uint64_t length = 0;
  for (const char c : value) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
    const uint64_t digit = c - '0';
    if (length > (kMost - digit) / 10) return false;
    length = 10 * length + digit;
  }
  content_length_ = length;
  return true;
}

bool RequestRules::OnHeadersEnd() {
  headers_ended_ = true;
  if (is_connect_) {  // section 8.5: its body is a tunnel
    content_length_.reset();
    return has_authority_ && !has_scheme_ && !has_path_;
  }
  const bool path_fits = !is_http_ || path_is_rooted_ || (is_options_ && path_is_asterisk_);
  return has_method_ && has_scheme_ && has_path_ && (has_authority_ || has_host_) && path_fits;
}

bool RequestRules::OnData(size_t bytes) {
  received_bytes_ += bytes;
  return !content_length_.has_value() || received_bytes_ <= *content_length_;
}

bool RequestRules::OnEnd() const {
  return !content_length_.has_value() || received_bytes_ == *content_length_;
}

}  // namespace sluice

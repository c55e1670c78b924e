#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace sluice {

// The rules of one received request (RFC 9113, section 8): its headers, trailers, and the length of its body. They are
// nghttp2's rules, except that an :authority may be empty, and may contain any visible character. gRPC's servers accept
// such requests, and etcd's clients send them. nghttp2 can only omit all of its rules. There is one for each stream.
// Not thread-safe.
class RequestRules {
 public:
  // The functions below return false if the request is malformed. Then it must be reset.

  // Checks the next header, or the next trailer after OnHeadersEnd.
  bool OnHeader(absl::string_view name, absl::string_view value);
  // The header block of the request has ended.
  bool OnHeadersEnd();
  // `bytes` of the body have arrived: no more than content-length allows.
  bool OnData(size_t bytes);
  // END_STREAM has arrived, after as many bytes as content-length requires.
  bool OnEnd() const;

 private:
  bool OnPseudoHeader(absl::string_view name, absl::string_view value);
  bool OnContentLength(absl::string_view value);

  bool headers_ended_ = false;
  bool had_regular_ = false;  // no pseudo-header may follow
  bool has_method_ = false;
  bool has_scheme_ = false;
  bool has_path_ = false;
  bool has_authority_ = false;
  bool has_host_ = false;
  bool is_connect_ = false;
  bool is_options_ = false;
  bool is_http_ = false;  // the scheme is http or https
  bool path_is_rooted_ = false;
  bool path_is_asterisk_ = false;
  std::optional<uint64_t> content_length_;
  uint64_t received_bytes_ = 0;
};

}  // namespace sluice

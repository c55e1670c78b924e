#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// Reads how a client begins a connection, or a tunnel: bytes in, a decision out. There is one for each beginning. Not
// thread-safe.
//
//   HTTP/2       The preface of RFC 9113, section 3.4: the client speaks gRPC with prior knowledge.
//   CONNECT      The client asks for a tunnel (RFC 9110, section 9.3.6), as gRPC's clients do with a proxy.
//   other        The client speaks something else. Its owner refuses that, or passes it on within a tunnel.
class ClientOpening {
 public:
  enum class Kind { kUnknown, kHttp2, kConnect, kOther };

  // Upper bound of the head of a CONNECT request.
  static constexpr size_t kMaxHeadBytes = 16u << 10;

  // Takes bytes, cut anywhere. Call it until the kind is known.
  Kind Read(absl::string_view bytes);

  Kind kind() const { return kind_; }
  // kConnect: "host:port" of the request.
  const std::string& target() const { return target_; }
  // kOther: the answer that refuses it, whole. Empty if the bytes are not HTTP.
  const std::string& refusal() const { return refusal_; }
  // What came and belongs to what follows: for kHttp2 and kOther all bytes, for kConnect those behind its head.
  std::string TakeRest();
  // All that came, in place of TakeRest: for whoever passes it on.
  std::string TakeAll();

 private:
  void ReadHttp1();
  void Refuse(int status, absl::string_view why);

  Kind kind_ = Kind::kUnknown;
  std::string bytes_;
  size_t head_bytes_ = 0;  // of a CONNECT, at the beginning of bytes_
  std::string target_;
  std::string refusal_;
};

// The whole answer of HTTP/1.1 that refuses a request, with `why` as its body. The connection ends with it.
std::string Http1Refusal(int status, absl::string_view why);

}  // namespace sluice

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/http2/first_request.h"

namespace sluice {

// Reads the first bytes of a connection or of a tunnel, and decides which protocol the client uses. There is one for
// each connection and tunnel. Not thread-safe.
//
//   HTTP/2       The preface of RFC 9113, section 3.4: the client has prior knowledge.
//   CONNECT      The client requests a tunnel (RFC 9110, section 9.3.6), as gRPC clients do with a proxy.
//   SOCKS5       The client requests a tunnel (RFC 1928), as most programs can: curl, JVMs, proxychains.
//   other        A different protocol. The owner refuses it.
//
// Within a tunnel, HTTP/2 is kHttp2 if its first request is gRPC, and so are connections that begin with another frame.
// All other bytes are kOther, from the first byte on that differs: the owner forwards them.
class ClientOpening {
 public:
  enum class Kind { kUnknown, kHttp2, kConnect, kOther };  // kConnect: SOCKS5, too

  explicit ClientOpening(bool in_tunnel = false) : in_tunnel_(in_tunnel) {}

  // Upper bound of the head of a CONNECT request.
  static constexpr size_t kMaxHeadBytes = 16u << 10;

  // Takes the next bytes, split anywhere. Call it until the kind is known.
  Kind Read(absl::string_view bytes);

  // Returns bytes that the client must receive now: SOCKS5 answers a greeting, and a server of HTTP/2 the preface,
  // since clients of gRPC wait for it. Call it after each Read.
  std::string TakeReply() { return std::exchange(reply_, {}); }

  Kind kind() const { return kind_; }
  bool socks() const { return socks_; }  // the request is one of SOCKS5
  // kConnect: "host:port" of the request.
  const std::string& target() const { return target_; }
  // kOther outside of a tunnel: the complete response that refuses the request, and its reason. The response is empty
  // if the bytes are not HTTP.
  const std::string& refusal() const { return refusal_; }
  const std::string& why() const { return why_; }
  // Names the protocol that begins with these bytes: "TLS", kPlaintextHttp2, "HTTP/1.1" or "an unknown protocol".
  static constexpr char kPlaintextHttp2[] = "plaintext HTTP/2";
  static absl::string_view ProtocolOf(absl::string_view bytes);
  size_t bytes() const { return bytes_.size(); }                      // that were received and not taken
  bool answered_http2() const { return first_request_.has_value(); }  // by TakeReply
  // Takes bytes that follow those of Read. Returns them without the acknowledgement of what TakeReply answered to
  // HTTP/2, valid until the next call.
  absl::string_view PassOn(absl::string_view bytes);
  // The bytes that belong to the protocol that follows: for kHttp2 and kOther all bytes, for kConnect the bytes after
  // its head.
  std::string TakeRest();
  // All received bytes. An owner that forwards them calls it instead of TakeRest.
  std::string TakeAll();

 private:
  void ReadHttp1(size_t new_at);
  void BeginHttp2InTunnel();
  void ReadFirstRequest(absl::string_view bytes);
  void ReadSocks();
  void ReadSocksRequest();
  void Refuse(int status, absl::string_view why);
  void RefuseSocks(absl::string_view refusal, absl::string_view why);

  bool in_tunnel_;
  Kind kind_ = Kind::kUnknown;
  bool socks_ = false;
  std::string reply_;
  std::string bytes_;
  size_t parsed_bytes_ = 0;    // bytes that were parsed while a head of HTTP/1.1 was incomplete
  size_t head_bytes_ = 0;      // size of the head of a CONNECT request, at the beginning of bytes_; of SOCKS5, likewise
  size_t greeting_bytes_ = 0;  // of SOCKS5, at the beginning of bytes_; 0: it has not come whole
  std::string target_;
  std::string refusal_;
  std::string why_;
  std::optional<FirstRequest> first_request_;  // in a tunnel that begins with the preface
};

// The complete HTTP/1.1 response that refuses a request, with `why` as its body. It ends the connection. `headers`:
// more lines of its head, each with its CRLF.
std::string Http1Refusal(int status, absl::string_view why, absl::string_view headers = "");

// The response to a CONNECT whose target cannot be used: `why` is the body, and also in the header Proxy-Status (RFC
// 9209) of this `proxy`. The status is 403 for PermissionDenied, 504 for DeadlineExceeded, 400 for InvalidArgument, and
// otherwise 502.
std::string ConnectRefusal(const absl::Status& why, absl::string_view proxy);

// The reply of SOCKS5 to a request: OK if the tunnel is open, otherwise why it is not (RFC 1928, section 6).
std::string SocksReply(const absl::Status& reached);

// The bytes that refuse a client within its tunnel, in the protocol that `bytes` begin: a fatal TLS alert,
// access_denied, a response 403 with `why`, or a GOAWAY with `why`. Empty for other protocols.
std::string TunnelRefusal(absl::string_view bytes, absl::string_view why);

}  // namespace sluice

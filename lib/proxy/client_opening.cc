#include "lib/proxy/client_opening.h"

#include <algorithm>
#include <optional>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/address_v4.hpp>
#include <boost/asio/ip/address_v6.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/metadata_fields.h"
#include "lib/http2/session.h"

namespace sluice {
namespace {

namespace http = boost::beast::http;

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

constexpr char kTlsHandshake = 22;  // the first byte of a record (RFC 8446, section 5.1)
// A record with an alert of TLS 1.2, which clients of every version read: fatal, access_denied.
constexpr absl::string_view kTlsAccessDenied("\x15\x03\x03\x00\x02\x02\x31", 7);

constexpr char kSocks5 = 5;  // the version, with which greeting, request and replies begin (RFC 1928)
constexpr char kSocksWithoutAuthentication = 0;
constexpr char kSocksNoMethod = '\xff';
constexpr char kSocksConnect = 1;
constexpr char kSocksIpv4 = 1;
constexpr char kSocksName = 3;
constexpr char kSocksIpv6 = 4;
constexpr size_t kSocksHeadBytes = 4;  // of a request, before its address
// Replies to a request.
constexpr char kSocksSucceeded = 0;
constexpr char kSocksFailed = 1;
constexpr char kSocksNotAllowed = 2;
constexpr char kSocksHostUnreachable = 4;
constexpr char kSocksRefused = 5;
constexpr char kSocksExpired = 6;
constexpr char kSocksCommandUnknown = 7;
constexpr char kSocksAddressUnknown = 8;

// A reply, with 0.0.0.0:0 as the address from which the proxy connects: clients do not use it.
std::string SocksReplyWith(char code) {
  return {kSocks5, code, 0, kSocksIpv4, 0, 0, 0, 0, 0, 0};
}

bool IsHostName(absl::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_';
  });
}

// Returns a name of SOCKS5 as it stands in "host:port"; nullopt if it names no host. Some clients send the text of an
// address as a name.
std::optional<std::string> HostOfSocksName(absl::string_view name) {
  if (IsHostName(name)) return std::string(name);
  boost::system::error_code error;
  boost::asio::ip::make_address_v6(std::string(name), error);
  return error ? std::nullopt : std::optional(absl::StrCat("[", name, "]"));
}

uint8_t ByteOf(absl::string_view bytes, size_t place) {
  return static_cast<uint8_t>(bytes[place]);
}

// Whether this can be a method of HTTP/1.1.
bool BeginsHttp1(absl::string_view bytes) {
  return bytes.front() >= 'A' && bytes.front() <= 'Z';
}

// Returns the target with the port of HTTPS if it has none. grpc-go sends a name alone for "dns:///name".
std::string WithPort(absl::string_view target) {
  const size_t bracket = target.rfind(']');
  const bool has_port = target.find(':', bracket == absl::string_view::npos ? 0 : bracket) != absl::string_view::npos;
  return absl::StrCat(target, has_port ? "" : ":443");
}

// Returns a string of RFC 8941, section 3.3.3, which is printable ASCII.
std::string QuotedString(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += absl::ascii_isprint(static_cast<unsigned char>(c)) ? c : '?';
  }
  return quoted + '"';
}

// A GOAWAY that no request precedes, with its reason as debug data (RFC 9113, section 6.8).
std::string GoAwayWith(absl::string_view why) {
  constexpr size_t kMaxWhy = 1000;
  why = why.substr(0, kMaxWhy);
  const size_t size = 8 + why.size();
  std::string frame = {0, static_cast<char>(size >> 8), static_cast<char>(size & 0xff), 7, 0, 0, 0, 0, 0};
  frame.append(7, 0);  // the last stream, and the first bytes of the error code
  frame.push_back(static_cast<char>(Http2Error::kInternalError));
  return absl::StrCat(frame, why);
}

}  // namespace

ClientOpening::Kind ClientOpening::Read(absl::string_view bytes) {
  if (first_request_.has_value()) {
    ReadFirstRequest(bytes);
    return kind_;
  }
  const size_t new_at = bytes_.size();
  bytes_.append(bytes.data(), bytes.size());
  if (bytes_.empty()) return kind_;
  const size_t compared = std::min(bytes_.size(), kPreface.size());
  if (absl::string_view(bytes_).substr(0, compared) == kPreface.substr(0, compared)) {
    if (compared < kPreface.size()) return kind_;
    if (!in_tunnel_) return kind_ = Kind::kHttp2;
    BeginHttp2InTunnel();
  } else if (in_tunnel_) {
    kind_ = Kind::kOther;
  } else if (BeginsHttp1(bytes_)) {
    ReadHttp1(new_at);
  } else if (bytes_.front() == kSocks5) {
    ReadSocks();
  } else {
    kind_ = Kind::kOther;
    why_ = absl::StrCat("the client sends ", ProtocolOf(bytes_),
                        ", and this address takes plaintext HTTP/2, CONNECT or SOCKS5",
                        bytes_.front() == kTlsHandshake ? "; let it use plaintext, or an address tls:host:port" : "");
  }
  return kind_;
}

// A client that sends its first request at once needs no answer, and its bytes pass as they are.
void ClientOpening::BeginHttp2InTunnel() {
  const std::string all = bytes_;
  bytes_.resize(kPreface.size());
  first_request_.emplace();
  ReadFirstRequest(absl::string_view(all).substr(kPreface.size()));
  if (kind_ == Kind::kUnknown) {
    reply_ = std::string(FirstRequest::kSettings);
  } else {
    bytes_ = all;
    first_request_.reset();
  }
}

void ClientOpening::ReadFirstRequest(absl::string_view bytes) {
  first_request_->Read(bytes, bytes_);
  if (!first_request_->decided()) return;
  const HeaderList* const head = first_request_->head();
  const auto is_grpc = [](const HeaderField& field) {
    return field.name == "content-type" && IsGrpcContentType(field.value);
  };
  kind_ = head == nullptr || std::any_of(head->begin(), head->end(), is_grpc) ? Kind::kHttp2 : Kind::kOther;
}

absl::string_view ClientOpening::PassOn(absl::string_view bytes) {
  if (!first_request_.has_value()) return bytes;
  bytes_.clear();
  first_request_->Read(bytes, bytes_);
  if (first_request_->done()) first_request_.reset();
  return bytes_;
}

absl::string_view ClientOpening::ProtocolOf(absl::string_view bytes) {
  if (bytes.empty()) return "nothing";
  if (bytes.front() == kTlsHandshake) return "TLS";
  if (bytes.substr(0, kPreface.size()) == kPreface) return kPlaintextHttp2;
  return BeginsHttp1(bytes) ? "HTTP/1.1" : "an unknown protocol";
}

// Parses all bytes from the beginning. So that a head that comes byte by byte costs little, it waits until there are
// twice as many, or the new ones contain the end of a head.
void ClientOpening::ReadHttp1(size_t new_at) {
  constexpr absl::string_view kEnd = "\r\n\r\n";
  const bool has_end = bytes_.find(kEnd.data(), new_at - std::min(new_at, kEnd.size() - 1)) != std::string::npos;
  if (!has_end && bytes_.size() < 2 * parsed_bytes_ && bytes_.size() <= kMaxHeadBytes) return;
  parsed_bytes_ = bytes_.size();
  http::request_parser<http::empty_body> parser;
  parser.header_limit(kMaxHeadBytes);
  parser.skip(true);  // ignore the headers of a body: the tunnel follows the head of CONNECT
  boost::system::error_code error;
  const size_t taken = parser.put(boost::asio::buffer(bytes_), error);
  if (error == http::error::need_more) return;
  if (error) return Refuse(400, error == http::error::header_limit ? "the head is too large" : error.message());
  const auto& request = parser.get();
  if (request.method() != http::verb::connect) {
    return Refuse(501,
                  "this proxy carries gRPC, by HTTP/2 or by CONNECT; keep other traffic from it by no_proxy, or "
                  "set grpc_proxy in place of http_proxy");
  }
  kind_ = Kind::kConnect;
  target_ = WithPort({request.target().data(), request.target().size()});
  head_bytes_ = taken;
}

// A greeting has the number of methods and the methods. The request may follow at once.
void ClientOpening::ReadSocks() {
  if (greeting_bytes_ == 0) {
    if (bytes_.size() < 2 || bytes_.size() < 2U + ByteOf(bytes_, 1)) return;
    const absl::string_view methods = absl::string_view(bytes_).substr(2, ByteOf(bytes_, 1));
    if (methods.find(kSocksWithoutAuthentication) == absl::string_view::npos) {
      return RefuseSocks(std::string{kSocks5, kSocksNoMethod}, "the client of SOCKS5 insists on authentication");
    }
    greeting_bytes_ = 2 + methods.size();
    reply_ = {kSocks5, kSocksWithoutAuthentication};
  }
  ReadSocksRequest();
}

void ClientOpening::ReadSocksRequest() {
  const absl::string_view request = absl::string_view(bytes_).substr(greeting_bytes_);
  if (request.size() < kSocksHeadBytes + 1) return;
  if (request[0] != kSocks5 || request[1] != kSocksConnect) {
    return RefuseSocks(SocksReplyWith(kSocksCommandUnknown), "the only command of SOCKS5 here is CONNECT");
  }
  const char type = request[3];
  if (type != kSocksIpv4 && type != kSocksIpv6 && type != kSocksName) {
    return RefuseSocks(SocksReplyWith(kSocksAddressUnknown), "SOCKS5 with an unknown type of address");
  }
  const size_t begin = kSocksHeadBytes + (type == kSocksName ? 1 : 0);
  const size_t bytes = type == kSocksName ? ByteOf(request, kSocksHeadBytes) : type == kSocksIpv4 ? 4 : 16;
  if (request.size() < begin + bytes + 2) return;
  const absl::string_view address = request.substr(begin, bytes);
  const int port = ByteOf(request, begin + bytes) << 8 | ByteOf(request, begin + bytes + 1);
  if (type == kSocksName) {
    const std::optional<std::string> host = HostOfSocksName(address);
    if (!host.has_value()) {
      return RefuseSocks(SocksReplyWith(kSocksAddressUnknown), "SOCKS5 with a name that is no host name");
    }
    target_ = absl::StrCat(*host, ":", port);
  } else if (type == kSocksIpv4) {
    boost::asio::ip::address_v4::bytes_type ip;
    std::copy(address.begin(), address.end(), ip.begin());
    target_ = absl::StrCat(boost::asio::ip::address_v4(ip).to_string(), ":", port);
  } else {
    boost::asio::ip::address_v6::bytes_type ip;
    std::copy(address.begin(), address.end(), ip.begin());
    target_ = absl::StrCat("[", boost::asio::ip::address_v6(ip).to_string(), "]:", port);
  }
  kind_ = Kind::kConnect;
  socks_ = true;
  head_bytes_ = greeting_bytes_ + begin + bytes + 2;
}

void ClientOpening::RefuseSocks(absl::string_view refusal, absl::string_view why) {
  kind_ = Kind::kOther;
  why_ = std::string(why);
  refusal_ = std::string(refusal);
}

void ClientOpening::Refuse(int status, absl::string_view why) {
  kind_ = Kind::kOther;
  why_ = std::string(why);
  refusal_ = Http1Refusal(status, why);
}

std::string ClientOpening::TakeRest() {
  return TakeAll().substr(head_bytes_);
}

std::string ClientOpening::TakeAll() {
  return std::exchange(bytes_, {});
}

std::string Http1Refusal(int status, absl::string_view why, absl::string_view headers) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(status));
  return absl::StrCat("HTTP/1.1 ", status, " ", absl::string_view(reason.data(), reason.size()),
                      "\r\nConnection: close\r\n", headers,
                      "Content-Type: text/plain\r\nContent-Length: ", why.size() + 1, "\r\n\r\n", why, "\n");
}

std::string ConnectRefusal(const absl::Status& why, absl::string_view proxy) {
  const auto [status, error] = [&]() -> std::pair<int, const char*> {
    switch (why.code()) {
      case absl::StatusCode::kInvalidArgument:
        return {400, "http_request_error"};
      case absl::StatusCode::kPermissionDenied:
        return {403, "http_request_denied"};
      case absl::StatusCode::kDeadlineExceeded:
        return {504, "connection_timeout"};
      case absl::StatusCode::kNotFound:
        return {502, "dns_error"};
      case absl::StatusCode::kUnavailable:
        return {502, "destination_unavailable"};
      default:
        return {502, "proxy_internal_error"};
    }
  }();
  const std::string header =
      absl::StrCat("Proxy-Status: ", proxy, "; error=", error, "; details=", QuotedString(why.message()), "\r\n");
  return Http1Refusal(status, why.message(), header);
}

std::string SocksReply(const absl::Status& reached) {
  switch (reached.code()) {
    case absl::StatusCode::kOk:
      return SocksReplyWith(kSocksSucceeded);
    case absl::StatusCode::kPermissionDenied:
      return SocksReplyWith(kSocksNotAllowed);
    case absl::StatusCode::kNotFound:
      return SocksReplyWith(kSocksHostUnreachable);
    case absl::StatusCode::kUnavailable:
      return SocksReplyWith(kSocksRefused);
    case absl::StatusCode::kDeadlineExceeded:
      return SocksReplyWith(kSocksExpired);
    default:
      return SocksReplyWith(kSocksFailed);
  }
}

std::string TunnelRefusal(absl::string_view bytes, absl::string_view why) {
  if (bytes.empty()) return "";
  if (bytes.front() == kTlsHandshake) return std::string(kTlsAccessDenied);
  if (bytes.substr(0, kPreface.size()) == kPreface) return GoAwayWith(why);
  return BeginsHttp1(bytes) ? Http1Refusal(403, why) : "";
}

}  // namespace sluice

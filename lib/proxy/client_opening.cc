#include "lib/proxy/client_opening.h"

#include <algorithm>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

namespace http = boost::beast::http;

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Whether this can be a method of HTTP/1.1; TLS begins with byte 22.
bool BeginsHttp1(absl::string_view bytes) {
  return bytes.front() >= 'A' && bytes.front() <= 'Z';
}

}  // namespace

ClientOpening::Kind ClientOpening::Read(absl::string_view bytes) {
  bytes_.append(bytes.data(), bytes.size());
  if (bytes_.empty()) return kind_;
  const size_t compared = std::min(bytes_.size(), kPreface.size());
  if (absl::string_view(bytes_).substr(0, compared) == kPreface.substr(0, compared)) {
    if (compared == kPreface.size()) kind_ = Kind::kHttp2;
  } else if (BeginsHttp1(bytes_)) {
    ReadHttp1();
  } else {
    kind_ = Kind::kOther;
  }
  return kind_;
}

void ClientOpening::ReadHttp1() {
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
  target_ = std::string(request.target());
  head_bytes_ = taken;
}

void ClientOpening::Refuse(int status, absl::string_view why) {
  kind_ = Kind::kOther;
  refusal_ = Http1Refusal(status, why);
}

std::string ClientOpening::TakeRest() {
  return TakeAll().substr(head_bytes_);
}

std::string ClientOpening::TakeAll() {
  return std::exchange(bytes_, {});
}

std::string Http1Refusal(int status, absl::string_view why) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(status));
  return absl::StrCat("HTTP/1.1 ", status, " ", absl::string_view(reason.data(), reason.size()),
                      "\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: ", why.size() + 1,
                      "\r\n\r\n", why, "\n");
}

}  // namespace sluice

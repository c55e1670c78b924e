#include "lib/telemetry/http_session.h"

#include <chrono>
#include <cstddef>
#include <cstdint>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>

namespace sluice {
namespace {

namespace http = boost::beast::http;

// Idle time between requests. It exceeds the usual scrape interval, so that Prometheus keeps its connection.
constexpr std::chrono::seconds kIdleTimeout{75};
constexpr std::chrono::seconds kLingerTimeout{1};
// Pages are self-contained: their code is inline and contacts only the server that they came from. Injected content
// therefore cannot load or send anything elsewhere.
constexpr char kContentSecurityPolicy[] =
    "default-src 'none'; connect-src 'self'; img-src data:; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
constexpr uint32_t kMaxHeaderBytes = 8192;
constexpr size_t kMaxBufferBytes = size_t{2} * kMaxHeaderBytes;

HttpReply ErrorReply(http::status status) {
  return {.status = status, .body = std::string(http::obsolete_reason(status)) + "\n"};
}

http::status StatusOfBadRequest(boost::beast::error_code error) {
  // header_limit is the parser's bound on a header; buffer_overflow is the bound on pipelined bytes after it.
  const bool too_large = error == http::error::header_limit || error == http::error::buffer_overflow;
  return too_large ? http::status::request_header_fields_too_large : http::status::bad_request;
}

// Errors of the parser are the client's. After all others (closed, reset, timed out) no client remains to receive a
// response.
bool IsParseError(boost::beast::error_code error) {
  return error.category() == make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

bool IsLoopback(const boost::asio::ip::address& address) {
  if (!address.is_v6()) return address.is_loopback();
  const auto v6 = address.to_v6();
  return v6.is_loopback() ||
         (v6.is_v4_mapped() && boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, v6).is_loopback());
}

// Returns whether a Host header, with or without a port, names an address or localhost. A client without the header is
// not a browser.
bool IsAddressOrLocalhost(std::string host) {
  const bool bracketed = !host.empty() && host.front() == '[';
  if (const size_t end = bracketed ? host.find(']') : host.rfind(':'); end != std::string::npos) {
    host = bracketed ? host.substr(1, end - 1) : host.substr(0, end);
  }
  if (host.empty() || boost::beast::iequals(host, "localhost")) return true;
  boost::system::error_code error;
  boost::asio::ip::make_address(host, error);
  return !error;
}

}  // namespace

HttpSession::HttpSession(boost::asio::ip::tcp::socket socket, std::chrono::milliseconds timeout, Handler handler,
                         std::function<void()> on_end)
    : stream_(std::move(socket)),
      timeout_(timeout),
      handler_(std::move(handler)),
      on_end_(std::move(on_end)),
      buffer_(kMaxBufferBytes) {}

void HttpSession::Close() {
  on_end_ = nullptr;
  stream_.close();
}

void HttpSession::ReadHeader(std::chrono::milliseconds timeout) {
  parser_.emplace();
  parser_->header_limit(kMaxHeaderBytes);
  stream_.expires_after(timeout);
  http::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](boost::beast::error_code error, size_t) { self->OnHeader(error); });
}

void HttpSession::OnHeader(boost::beast::error_code error) {
  if (!on_end_) return;
  if (IsParseError(error)) return Write(ErrorReply(StatusOfBadRequest(error)), {http::verb::get, "/", 11}, false);
  if (error) return End();
  const Request& request = parser_->get();
  // A request with a body is the last of its connection: the session would need to read the body before the next
  // request, and no legitimate client sends one.
  Write(Answer(request), request, request.keep_alive() && parser_->is_done());
}

// A page of any site can let its own name lead to a loopback address, and the browser of an operator then reads this
// server for it (DNS rebinding). The name is in Host. On other addresses, names are common: Prometheus scrapes by them.
bool HttpSession::MayServe(const Request& request) const {
  boost::beast::error_code error;
  const auto local = stream_.socket().local_endpoint(error);
  if (error || !IsLoopback(local.address())) return true;
  const auto host = request[http::field::host];
  return IsAddressOrLocalhost(std::string(host));
}

HttpReply HttpSession::Answer(const Request& request) const {
  if (!MayServe(request)) {
    return {.status = http::status::misdirected_request,
            .body = "this Host is not an address, or localhost; use http://localhost or an IP address\n"};
  }
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    return ErrorReply(http::status::method_not_allowed);
  }
  const auto target = request.target();
  return handler_(std::string(target.substr(0, target.find('?'))));
}

void HttpSession::Write(HttpReply reply, const Request& request, bool keep_alive) {
  response_ = Response(reply.status, request.version());
  response_.set(http::field::content_type, reply.content_type);
  response_.set(http::field::cache_control, "no-store");
  response_.set("Content-Security-Policy", kContentSecurityPolicy);
  response_.set("X-Content-Type-Options", "nosniff");
  if (reply.status == http::status::method_not_allowed) response_.set(http::field::allow, "GET, HEAD");
  response_.keep_alive(keep_alive);
  response_.content_length(reply.body.size());
  if (request.method() != http::verb::head) response_.body() = std::move(reply.body);
  stream_.expires_after(timeout_);
  http::async_write(stream_, response_,
                    [self = shared_from_this(), keep_alive](boost::beast::error_code error, size_t) {
                      if (!self->on_end_) return;
                      if (error) return self->End();
                      keep_alive ? self->ReadHeader(kIdleTimeout) : self->Linger();
                    });
}

// Discards further input until the client closes, for at most a second. Closing a socket with unread input resets the
// connection, and the client may lose the response.
void HttpSession::Linger() {
  boost::beast::error_code ignored;
  stream_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
  stream_.expires_after(kLingerTimeout);
  buffer_.clear();
  DiscardInput();
}

void HttpSession::DiscardInput() {
  stream_.async_read_some(buffer_.prepare(kMaxHeaderBytes),
                          [self = shared_from_this()](boost::beast::error_code error, size_t) {
                            if (!self->on_end_) return;
                            error ? self->End() : self->DiscardInput();
                          });
}

void HttpSession::End() {
  const std::function<void()> on_end = std::exchange(on_end_, nullptr);
  stream_.close();
  on_end();
}

}  // namespace sluice

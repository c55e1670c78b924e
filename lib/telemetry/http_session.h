#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

namespace sluice {

struct HttpReply {
  boost::beast::http::status status = boost::beast::http::status::ok;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// One connection of the admin server. It serves GET and HEAD, one request after the other (RFC 9110, 9112), and refuses
// all other methods. A client has `timeout` to send the header of its first request, and the same time to read a
// response. A header has at most 8 KiB, and request bodies are not read. On a loopback address, a request must name an
// IP address or localhost as its Host. Used on the thread of its io_context only. It
// keeps itself alive until it has ended.
class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  // Returns the response to a request; `path` is the path of the request target, without its query.
  using Handler = std::function<HttpReply(const std::string& path)>;

  HttpSession(boost::asio::ip::tcp::socket socket, std::chrono::milliseconds timeout, Handler handler,
              std::function<void()> on_end);

  void Start() { ReadHeader(timeout_); }
  // Closes at once. Afterwards, no call of the handler or of on_end follows.
  void Close();

 private:
  using Request = boost::beast::http::request<boost::beast::http::empty_body>;
  using Response = boost::beast::http::response<boost::beast::http::string_body>;

  void ReadHeader(std::chrono::milliseconds timeout);
  void OnHeader(boost::beast::error_code error);
  bool MayServe(const Request& request) const;
  HttpReply Answer(const Request& request) const;
  void Write(HttpReply reply, const Request& request, bool keep_alive);
  void Linger();
  void DiscardInput();
  void End();

  boost::beast::tcp_stream stream_;
  const std::chrono::milliseconds timeout_;
  const Handler handler_;
  std::function<void()> on_end_;  // null after the session has ended
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::empty_body>> parser_;
  Response response_;
};

}  // namespace sluice

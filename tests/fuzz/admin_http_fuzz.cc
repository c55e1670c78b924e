// Sends arbitrary bytes of a client to HttpSession over a socket pair. Every response must be complete and have a known
// status. The pages must not depend on how the bytes are cut. The session must end when the client does.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>  // Boost 1.74 needs it and does not include it in C++20
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/beast/http/parser.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/telemetry/http_session.h"
#include "tests/fuzz/fuzz_input.h"

namespace sluice {
namespace {

namespace http = boost::beast::http;

constexpr char kBody[] = "what the page says\n";

struct Exchange {
  std::vector<std::string> paths;  // requested from the handler
  std::string answers;
};

// Sends all bytes in pieces of `piece_bytes`, then closes the client's side.
Exchange Run(absl::string_view bytes, size_t piece_bytes) {
  Exchange exchange;
  bool ended = false;
  boost::asio::io_context context;
  std::array<int, 2> fds;
  FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) == 0);
  const auto session = std::make_shared<HttpSession>(
      boost::asio::ip::tcp::socket(context, boost::asio::ip::tcp::v4(), fds[0]), std::chrono::hours(1),
      [&](const std::string& path) {
        exchange.paths.push_back(path);
        return HttpReply{.body = kBody};
      },
      [&] {
        FUZZ_CHECK(!ended);
        ended = true;
      });
  const auto turn = [&] {
    context.restart();
    while (context.poll() > 0) {
    }
    std::array<char, 4096> part;
    for (ssize_t size; (size = recv(fds[1], part.data(), part.size(), 0)) > 0;) {
      exchange.answers.append(part.data(), static_cast<size_t>(size));
    }
  };
  session->Start();
  for (; !bytes.empty() && !ended; bytes.remove_prefix(std::min(piece_bytes, bytes.size()))) {
    const absl::string_view piece = bytes.substr(0, piece_bytes);
    FUZZ_CHECK(send(fds[1], piece.data(), piece.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(piece.size()));
    turn();
  }
  shutdown(fds[1], SHUT_WR);
  // A response that exceeded the socket's buffer continues after the buffer has been emptied.
  for (int turns = 0; turns < 1000 && !ended; ++turns) turn();
  FUZZ_CHECK(ended);
  close(fds[1]);
  return exchange;
}

// Removes the next response, header and body, from `rest`. Returns its status.
unsigned TakeAnswer(absl::string_view& rest, bool& keep_alive) {
  http::response_parser<http::empty_body> parser;
  parser.skip(true);  // do not expect a body: a HEAD response has none
  boost::beast::error_code error;
  const size_t header_bytes = parser.put(boost::asio::buffer(rest.data(), rest.size()), error);
  FUZZ_CHECK(!error && parser.is_header_done());
  rest.remove_prefix(header_bytes);
  const auto& header = parser.get();
  FUZZ_CHECK(header.count(http::field::content_length) == 1);
  FUZZ_CHECK(header.count(http::field::content_type) == 1);
  FUZZ_CHECK(header.count("Content-Security-Policy") == 1);
  FUZZ_CHECK(header["X-Content-Type-Options"] == "nosniff");
  FUZZ_CHECK((header.result() == http::status::method_not_allowed) == (header.count(http::field::allow) == 1));
  keep_alive = header.keep_alive();
  if (!rest.empty() && !absl::StartsWith(rest, "HTTP/1.")) {
    const size_t body_bytes = std::stoul(std::string(header[http::field::content_length]));
    FUZZ_CHECK(body_bytes <= rest.size());
    if (header.result() == http::status::ok) FUZZ_CHECK(rest.substr(0, body_bytes) == kBody);
    rest.remove_prefix(body_bytes);
  }
  return header.result_int();
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Exchange exchange = Run(bytes, SIZE_MAX);
  size_t pages = 0;
  bool keep_alive = true;
  for (absl::string_view rest = exchange.answers; !rest.empty();) {
    FUZZ_CHECK(keep_alive);
    const unsigned status = TakeAnswer(rest, keep_alive);
    FUZZ_CHECK(status == 200 || status == 400 || status == 405 || status == 431);
    if (status == 200) ++pages;
  }
  FUZZ_CHECK(pages == exchange.paths.size());
  for (const std::string& path : exchange.paths) FUZZ_CHECK(path.find('?') == std::string::npos);
  const Exchange bytewise = Run(bytes, 1);
  FUZZ_CHECK(bytewise.paths == exchange.paths);
  // Beast rejects bytes that are not a header earlier if more of them arrive at once. Therefore the run with all bytes
  // at once may end with an additional 400, for an incomplete header.
  if (bytewise.answers == exchange.answers) return 0;
  absl::string_view rest = exchange.answers;
  FUZZ_CHECK(absl::ConsumePrefix(&rest, bytewise.answers));
  FUZZ_CHECK(TakeAnswer(rest, keep_alive) == 400 && rest.empty());
  return 0;
}

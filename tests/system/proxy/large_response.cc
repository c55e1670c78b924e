// Reads one large response in a tunnel, or over a Link of its own, from a server in this process, and compares each
// byte: large_response WAY SERVER VIA BYTES. WAY is direct, connect, socks5 or library. VIA is the proxy, or the same
// as SERVER. Prints the seconds, or what went wrong.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio.hpp>

#include "sluice/link.h"
#include "sluice/link_stream.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/testbed/tcp_endpoint.h"

namespace sluice::testbed {
namespace {

namespace asio = boost::asio;
using asio::use_awaitable;
using asio::ip::tcp;

constexpr size_t kPeriod = 1'000'003;  // a prime, so that no piece that is lost or comes twice fits
constexpr size_t kPieceBytes = 1 << 20;
constexpr size_t kRequestBytes = 10;

// Returns the bytes from any place of the response within the period on, for one piece.
const std::string& Pattern() {
  static const std::string* const pattern = [] {
    auto* bytes = new std::string(kPeriod + kPieceBytes, '\0');
    for (size_t i = 0; i < bytes->size(); ++i) (*bytes)[i] = static_cast<char>(i % kPeriod * 2654435761U >> 13);
    return bytes;
  }();
  return *pattern;
}

void Serve(tcp::acceptor& acceptor, int64_t bytes) {
  tcp::socket socket = acceptor.accept();
  std::string request(kRequestBytes, '\0');
  asio::read(socket, asio::buffer(request));
  for (int64_t sent = 0; sent < bytes;) {
    const auto piece = static_cast<size_t>(std::min<int64_t>(bytes - sent, kPieceBytes));
    asio::write(socket, asio::buffer(Pattern().data() + sent % kPeriod, piece));
    sent += static_cast<int64_t>(piece);
  }
}

template <class Stream>
asio::awaitable<void> Read(Stream& stream, int64_t bytes) {
  co_await asio::async_write(stream, asio::buffer(std::string(kRequestBytes, '?')), use_awaitable);
  std::string piece(kPieceBytes, '\0');
  int64_t received = 0;
  while (true) {
    boost::system::error_code error;
    const size_t got = co_await stream.async_read_some(asio::buffer(piece), asio::redirect_error(use_awaitable, error));
    if (error == asio::error::eof) break;
    if (error) throw std::runtime_error(absl::StrCat(error.message(), " after ", received, " bytes"));
    if (std::memcmp(piece.data(), Pattern().data() + received % kPeriod, got) != 0) {
      throw std::runtime_error(absl::StrCat("a byte is wrong after ", received, " bytes"));
    }
    received += static_cast<int64_t>(got);
  }
  if (received != bytes) throw std::runtime_error(absl::StrCat("ended after ", received, " bytes"));
}

asio::awaitable<void> AskForTunnel(tcp::socket& socket, const std::string& way, const std::string& server) {
  std::string reply;
  if (way == "connect") {
    co_await asio::async_write(socket, asio::buffer(absl::StrCat("CONNECT ", server, " HTTP/1.1\r\n\r\n")),
                               use_awaitable);
    co_await asio::async_read_until(socket, asio::dynamic_buffer(reply), "\r\n\r\n", use_awaitable);
    if (reply.find(" 200 ") == std::string::npos) throw std::runtime_error(reply);
  } else if (way == "socks5") {
    const tcp::endpoint to = EndpointOf(server);
    const auto ip = to.address().to_v4().to_bytes();
    std::string request("\x05\x01\x00\x05\x01\x00\x01", 7);
    request.append(ip.begin(), ip.end());
    request += {static_cast<char>(to.port() >> 8), static_cast<char>(to.port())};
    co_await asio::async_write(socket, asio::buffer(request), use_awaitable);
    reply.resize(12);  // of the greeting, and of the request with an IPv4 address
    co_await asio::async_read(socket, asio::buffer(reply), use_awaitable);
    if (reply[3] != 0) throw std::runtime_error("SOCKS5: the request is refused");
  }
}

asio::awaitable<void> ReadBy(std::string way, std::string server, std::string via, int64_t bytes) {
  const auto executor = co_await asio::this_coro::executor;
  if (way == "library") {
    LinkProfile profile;
    profile.capacity_bytes_per_second = 100e6 / 8;
    profile.buffer_bytes = 4 << 20;
    const absl::StatusOr<std::shared_ptr<Link>> link = Link::Create(profile);
    if (!link.ok()) throw std::runtime_error(std::string(link.status().message()));
    LinkStream stream(executor, *link);
    const tcp::endpoint to = EndpointOf(server);
    co_await stream.async_connect(to.address().to_string(), to.port(), use_awaitable);
    co_await Read(stream, bytes);
  } else {
    tcp::socket socket(executor);
    co_await socket.async_connect(EndpointOf(via), use_awaitable);
    co_await AskForTunnel(socket, way, server);
    co_await Read(socket, bytes);
  }
}

void Run(const std::string& way, const std::string& server, const std::string& via, int64_t bytes) {
  asio::io_context context;
  tcp::acceptor acceptor(context, EndpointOf(server));
  std::jthread serving([&] {
    try {
      Serve(acceptor, bytes);
    } catch (const std::exception& error) {
      std::cerr << "server: " << error.what() << "\n";
    }
  });
  const auto begin = std::chrono::steady_clock::now();
  std::exception_ptr failed;
  asio::co_spawn(context, ReadBy(way, server, via, bytes),
                 [&](std::exception_ptr error) { failed = std::move(error); });
  context.run();
  if (failed != nullptr) std::rethrow_exception(failed);
  std::cout << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() << std::endl;
}

}  // namespace
}  // namespace sluice::testbed

int main(int argc, char** argv) {
  int64_t bytes = 0;
  if (argc != 5 || !absl::SimpleAtoi(argv[4], &bytes)) {
    std::cerr << "large_response direct|connect|socks5|library SERVER VIA BYTES\n";
    return 2;
  }
  try {
    sluice::testbed::Run(argv[1], argv[2], argv[3], bytes);
  } catch (const std::exception& error) {
    std::cerr << argv[1] << ": " << error.what() << std::endl;
    std::_Exit(1);  // the server may be blocked
  }
  return 0;
}

// Code that was written for sockets runs over LinkStream: TLS, Boost.Beast and coroutines.
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/rfc2818_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/stream_traits.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket.hpp>
#include <unistd.h>

#include "sluice/link_stream.h"

#include "absl/strings/str_cat.h"
#include "tests/unit/link/link_stream_fixture.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/tls/test_certificates.h"

namespace sluice::testing {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using SslStream = asio::ssl::stream<LinkStream>;

static_assert(beast::is_async_stream<LinkStream>::value);
static_assert(beast::is_sync_stream<LinkStream>::value);
static_assert(beast::is_async_stream<SslStream>::value);

// Serves one connection by blocking calls of Asio, with a socket that owns a copy of its descriptor.
template <class Serve>
TestListener::Serve WithSocket(Serve serve) {
  return [serve](int fd) {
    asio::io_context context;
    tcp::socket socket(context, tcp::v4(), dup(fd));
    try {
      serve(socket);
    } catch (const boost::system::system_error& error) {
      EXPECT_THAT(error.code(),
                  ::testing::AnyOf(asio::error::eof, http::error::end_of_stream, asio::ssl::error::stream_truncated));
    }
  };
}

// Responds to GETs of ranges of an object.
template <class Stream>
void ServeRanges(Stream& stream, const std::string& object) {
  beast::flat_buffer buffer;
  while (true) {
    http::request<http::empty_body> request;
    http::read(stream, buffer, request);
    size_t begin = 0;
    size_t end = 0;
    const std::string range(request[http::field::range]);
    EXPECT_EQ(std::sscanf(range.c_str(), "bytes=%zu-%zu", &begin, &end), 2) << range;
    http::response<http::string_body> response(http::status::partial_content, 11);
    response.body() = object.substr(begin, end - begin + 1);
    response.prepare_payload();
    http::write(stream, response);
  }
}

class LinkStreamProtocolsTest : public LinkStreamTest {
 protected:
  LinkStreamProtocolsTest() {
    SetLink(Shallow());
    const TestCertificates::Files server = certificates_.Make("server");
    server_tls_.use_certificate_chain_file(server.certificate_file);
    server_tls_.use_private_key_file(server.key_file, asio::ssl::context::pem);
    client_tls_.load_verify_file(certificates_.ca_file());
    client_tls_.set_verify_mode(asio::ssl::verify_peer);
  }

  template <class Stream>
  std::string GetRange(Stream& stream, size_t begin, size_t bytes) {
    http::request<http::empty_body> request(http::verb::get, "/object", 11);
    request.set(http::field::host, "localhost");
    request.set(http::field::range, absl::StrCat("bytes=", begin, "-", begin + bytes - 1));
    Succeed(http::async_write(stream, request, kOutcome));
    http::response<http::string_body> response;
    Succeed(http::async_read(stream, buffer_, response, kOutcome));
    EXPECT_EQ(response.result(), http::status::partial_content);
    return response.body();
  }

  TestCertificates certificates_;
  asio::ssl::context server_tls_{asio::ssl::context::tlsv13_server};
  asio::ssl::context client_tls_{asio::ssl::context::tlsv13_client};
  beast::flat_buffer buffer_;
};

TEST_F(LinkStreamProtocolsTest, BeastReadsHttp) {
  const std::string object = SomeBytes(1 << 20);
  const TestListener server("127.0.0.1:0", WithSocket([&](tcp::socket& socket) { ServeRanges(socket, object); }));
  const auto stream = Connect(server.address());
  for (const size_t bytes : {1, 10'000, 200'000}) {
    EXPECT_TRUE(GetRange(*stream, bytes, bytes) == object.substr(bytes, bytes));
  }
  EXPECT_EQ(&beast::get_lowest_layer(*stream), stream.get());
}

TEST_F(LinkStreamProtocolsTest, BeastReadsHttpOverTls) {
  const std::string object = SomeBytes(1 << 20);
  const TestListener server("127.0.0.1:0", WithSocket([&](tcp::socket& socket) {
                              asio::ssl::stream<tcp::socket&> stream(socket, server_tls_);
                              stream.handshake(asio::ssl::stream_base::server);
                              ServeRanges(stream, object);
                            }));
  SslStream stream(LinkStream(*context_, link_), client_tls_);
  Succeed(stream.lowest_layer().async_connect("localhost", PortOf(server.address()), kOutcome));
  stream.set_verify_callback(asio::ssl::rfc2818_verification("localhost"));
  Succeed(stream.async_handshake(asio::ssl::stream_base::client, kOutcome));
  for (const size_t bytes : {1, 10'000, 200'000}) {
    EXPECT_TRUE(GetRange(stream, bytes, bytes) == object.substr(bytes, bytes));
  }
  stream.lowest_layer().close();
}

TEST_F(LinkStreamProtocolsTest, TlsCarriesBytesBothWaysAndEndsProperly) {
  const TestListener server("127.0.0.1:0", WithSocket([&](tcp::socket& socket) {
                              asio::ssl::stream<tcp::socket&> stream(socket, server_tls_);
                              stream.handshake(asio::ssl::stream_base::server);
                              std::string bytes(4 << 20, '\0');
                              asio::read(stream, asio::buffer(bytes));
                              asio::write(stream, asio::buffer(bytes));
                              boost::system::error_code ignored;
                              stream.shutdown(ignored);
                            }));
  SslStream stream(LinkStream(*context_, link_), client_tls_);
  stream.next_layer().connect("127.0.0.1", PortOf(server.address()));
  stream.handshake(asio::ssl::stream_base::client);
  const std::string bytes = SomeBytes(4 << 20);
  Write(stream, bytes);
  EXPECT_TRUE(Read(stream, bytes.size()) == bytes);
  Succeed(stream.async_shutdown(kOutcome));
}

TEST_F(LinkStreamProtocolsTest, BeastReadsWebSockets) {
  const TestListener server("127.0.0.1:0", WithSocket([&](tcp::socket& socket) {
                              beast::websocket::stream<tcp::socket&> stream(socket);
                              stream.accept();
                              stream.binary(true);
                              beast::flat_buffer buffer;
                              stream.read(buffer);
                              stream.write(buffer.data());
                              boost::system::error_code closed;
                              stream.read(buffer, closed);
                            }));
  beast::websocket::stream<LinkStream> stream(*context_, link_);
  stream.next_layer().connect("127.0.0.1", PortOf(server.address()));
  Succeed(stream.async_handshake("localhost", "/", kOutcome));
  const std::string bytes = SomeBytes(100'000);
  stream.binary(true);
  Succeed(stream.async_write(asio::buffer(bytes), kOutcome));
  Succeed(stream.async_read(buffer_, kOutcome));
  EXPECT_TRUE(beast::buffers_to_string(buffer_.data()) == bytes);
  Succeed(stream.async_close(beast::websocket::close_code::normal, kOutcome));
  EXPECT_FALSE(stream.next_layer().is_open());
}

#if defined(BOOST_ASIO_HAS_CO_AWAIT)  // Boost 1.74 cannot use the coroutines of Clang 14

TEST_F(LinkStreamProtocolsTest, CoroutinesSpeakRedis) {
  const TestListener server("127.0.0.1:0", [](int fd) {
    while (ReceiveAtLeast(fd, 1).size() > 0) SendAll(fd, "$5\r\nvalue\r\n");
  });
  const auto session = [&]() -> asio::awaitable<std::string> {
    LinkStream stream(co_await asio::this_coro::executor, link_);
    co_await stream.async_connect("localhost", PortOf(server.address()), asio::use_awaitable);
    std::string values;
    for (int i = 0; i < 3; ++i) {
      const std::string request = "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";
      co_await asio::async_write(stream, asio::buffer(request), asio::use_awaitable);
      std::string response;
      co_await asio::async_read_until(stream, asio::dynamic_buffer(response), "value\r\n", asio::use_awaitable);
      values += response;
    }
    co_return values;
  };
  EXPECT_EQ(Get(asio::co_spawn(*context_, session, asio::use_future)), "$5\r\nvalue\r\n$5\r\nvalue\r\n$5\r\nvalue\r\n");
}

TEST_F(LinkStreamProtocolsTest, ACoroutineThatWaitsIsDestroyedWithItsContext) {
  const TestListener server("127.0.0.1:0", Echo);
  const auto alive = std::make_shared<int>();
  {
    asio::io_context context;
    EventLog log;
    const auto session = [&](std::shared_ptr<int> /*kept*/) -> asio::awaitable<void> {
      LinkStream stream(co_await asio::this_coro::executor, link_);
      co_await stream.async_connect("localhost", PortOf(server.address()), asio::use_awaitable);
      log.Add("connected");
      char byte = 0;
      co_await stream.async_read_some(asio::buffer(&byte, 1), asio::use_awaitable);
    };
    asio::co_spawn(context, session(alive), [](const std::exception_ptr&) {});
    while (log.events().empty()) context.run_one();
  }
  EXPECT_EQ(alive.use_count(), 1);
}

#endif

}  // namespace
}  // namespace sluice::testing

// A server whose protocol is a request of 100 bytes and a response of bytes, over TCP or TLS: it knows nothing of
// gRPC. A part of the test network, not installed.
//
//   byte_server [--cert=FILE --key=FILE] READY_FILE HOST:PORT...

#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>

#include "tests/testbed/byte_message.h"
#include "tests/testbed/tcp_endpoint.h"

namespace sluice::testbed {
namespace {

namespace asio = boost::asio;
using asio::use_awaitable;
using asio::ip::tcp;

struct Flags {
  std::string cert_file;
  std::string key_file;
  std::string ready_file;
  std::vector<std::string> listen;
};

template <class Stream>
asio::awaitable<void> Respond(Stream& stream) {
  std::string response;
  asio::steady_timer timer(stream.get_executor());
  while (true) {
    ByteRequest request;
    co_await asio::async_read(stream, asio::buffer(&request, sizeof(request)), use_awaitable);
    if (request.think_us > 0) {
      timer.expires_after(std::chrono::microseconds(request.think_us));
      co_await timer.async_wait(use_awaitable);
    }
    if (response.size() != request.response_bytes) {
      response.resize(request.response_bytes);
      for (size_t i = 0; i < response.size(); ++i) response[i] = ByteAt(request.response_bytes, i);
    }
    co_await asio::async_write(stream, asio::buffer(response), use_awaitable);
  }
}

asio::awaitable<void> Serve(tcp::socket socket, asio::ssl::context* tls) {
  try {
    socket.set_option(tcp::no_delay(true));
    if (tls == nullptr) {
      co_await Respond(socket);
    } else {
      asio::ssl::stream<tcp::socket> stream(std::move(socket), *tls);
      co_await stream.async_handshake(asio::ssl::stream_base::server, use_awaitable);
      co_await Respond(stream);
    }
  } catch (const boost::system::system_error&) {
    // The client has gone.
  }
}

asio::awaitable<void> Listen(tcp::acceptor acceptor, asio::ssl::context* tls) {
  while (true) {
    tcp::socket socket = co_await acceptor.async_accept(use_awaitable);
    asio::co_spawn(acceptor.get_executor(), Serve(std::move(socket), tls), asio::detached);
  }
}

void Run(const Flags& flags) {
  asio::io_context context(1);
  std::unique_ptr<asio::ssl::context> tls;
  if (!flags.cert_file.empty()) {
    tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
    tls->use_certificate_chain_file(flags.cert_file);
    tls->use_private_key_file(flags.key_file, asio::ssl::context::pem);
  }
  for (const std::string& address : flags.listen) {
    asio::co_spawn(context, Listen(tcp::acceptor(context, EndpointOf(address)), tls.get()), asio::detached);
  }
  asio::signal_set signals(context, SIGTERM, SIGINT);
  signals.async_wait([&context](const boost::system::error_code&, int) { context.stop(); });
  std::ofstream(flags.ready_file).put('\n');
  context.run();
}

}  // namespace
}  // namespace sluice::testbed

int main(int argc, char** argv) {
  CLI::App app("Responds with bytes to requests of byte_load.");
  sluice::testbed::Flags flags;
  app.add_option("--cert", flags.cert_file, "Serve TLS with this certificate");
  app.add_option("--key", flags.key_file, "Its key");
  app.add_option("ready_file", flags.ready_file, "Is made once the server listens")->required();
  app.add_option("listen", flags.listen, "Addresses, host:port")->required();
  CLI11_PARSE(app, argc, argv);
  try {
    sluice::testbed::Run(flags);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}

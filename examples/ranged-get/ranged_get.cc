// Reads one object from many HTTP servers at once, such as the replicas of an object store: a range from each. All
// ranges are of one version, by its ETag, or by Last-Modified, which changes once a second. The servers need no change.
// With --direct it uses sockets of Asio; everything behind the connect is the same code.
//
//   ranged_get [--ca FILE] [--direct] [--repeat N] /PATH HOST:PORT...

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/rfc2818_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <openssl/evp.h>

#include "sluice/link_stream.h"

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::use_awaitable;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

struct Flags {
  std::string path;
  std::vector<std::string> servers;
  std::string ca_file;  // empty: plain HTTP
  bool direct = false;
  double rate_mbps = 1000;
  int64_t buffer_kb = 128;
  int repeat = 1;
};

constexpr uint64_t kMostErrorBytes = 64 << 10;  // bound of the body of a response that is no range

// One version of the object, at all servers. Ranges of different versions do not make an object.
struct Version {
  http::field validator = http::field::etag;
  http::field precondition = http::field::if_match;
  std::string value;   // of both
  uint64_t bytes = 0;  // size of the whole object
};

using Response = http::response<http::string_body>;

std::string FieldOf(const Response& response, http::field name) {
  const auto text = response[name];
  return {text.data(), text.size()};
}

// The two kinds of connections.
asio::awaitable<void> Connect(sluice::LinkStream& stream, std::string host, uint16_t port) {
  co_await stream.async_connect(host, port, use_awaitable);
}

asio::awaitable<void> Connect(tcp::socket::lowest_layer_type& socket, std::string host, uint16_t port) {
  tcp::resolver resolver(socket.get_executor());
  const auto endpoints = co_await resolver.async_resolve(host, std::to_string(port), use_awaitable);
  co_await asio::async_connect(socket, endpoints, use_awaitable);
  socket.set_option(tcp::no_delay(true));
}

// One connection to a server. Stream is one of the two, or TLS over it.
template <class Stream>
class Connection {
 public:
  Connection(Stream stream, const std::string& server) : stream_(std::move(stream)), server_(server) {}

  asio::awaitable<void> Open() {
    const size_t colon = server_.rfind(':');
    const std::string host = server_.substr(0, colon);
    co_await Connect(stream_.lowest_layer(), host, static_cast<uint16_t>(std::stoi(server_.substr(colon + 1))));
    if constexpr (requires { stream_.async_handshake(asio::ssl::stream_base::client, use_awaitable); }) {
      stream_.set_verify_callback(asio::ssl::rfc2818_verification(host));
      co_await stream_.async_handshake(asio::ssl::stream_base::client, use_awaitable);
    }
  }

  asio::awaitable<Version> FindVersion(const std::string& path) {
    const Response response = co_await Get(path, 0, 1, std::nullopt);
    const std::string range = FieldOf(response, http::field::content_range);  // "bytes 0-0/1000"
    Version version;
    const char* const end = range.data() + range.size();
    if (!range.starts_with("bytes 0-0/") || std::from_chars(range.data() + 10, end, version.bytes).ptr != end) {
      throw std::runtime_error(server_ + ": not the range that was asked for: " + range);
    }
    version.value = FieldOf(response, version.validator);
    // A weak ETag is the same for versions that mean the same, and need not be equal.
    if (version.value.empty() || version.value.starts_with("W/")) {
      version.validator = http::field::last_modified;
      version.precondition = http::field::if_unmodified_since;
      version.value = FieldOf(response, version.validator);
    }
    if (version.value.empty())
      throw std::runtime_error(server_ + ": the object has no strong ETag and no Last-Modified");
    co_return version;
  }

  // Reads `bytes` of this version of the object, from `begin` on, to `target`.
  asio::awaitable<void> GetRange(const std::string& path, const Version& version, uint64_t begin, uint64_t bytes,
                                 char* target) {
    const Response response = co_await Get(path, begin, bytes, version);
    // Some servers do not read the precondition.
    if (FieldOf(response, version.validator) != version.value) {
      throw std::runtime_error(server_ + ": a different version of the object");
    }
    const std::string range = Range(begin, bytes) + "/" + std::to_string(version.bytes);
    if (FieldOf(response, http::field::content_range) != "bytes " + range || response.body().size() != bytes) {
      throw std::runtime_error(server_ + ": not the range that was asked for, " + range);
    }
    std::copy(response.body().begin(), response.body().end(), target);
  }

 private:
  static std::string Range(uint64_t begin, uint64_t bytes) {
    return std::to_string(begin) + "-" + std::to_string(begin + bytes - 1);
  }

  // Requests a range, of any version if none is given.
  asio::awaitable<Response> Get(const std::string& path, uint64_t begin, uint64_t bytes,
                                const std::optional<Version>& version) {
    http::request<http::empty_body> request(http::verb::get, path, 11);
    request.set(http::field::host, server_);
    request.set(http::field::range, "bytes=" + Range(begin, bytes));
    if (version.has_value()) request.set(version->precondition, version->value);
    co_await http::async_write(stream_, request, use_awaitable);
    http::response_parser<http::string_body> parser;
    parser.body_limit(bytes + kMostErrorBytes);
    co_await http::async_read_header(stream_, buffer_, parser, use_awaitable);
    const http::status status = parser.get().result();
    if (status == http::status::precondition_failed) {
      throw std::runtime_error(server_ + ": a different version of the object");
    }
    if (status != http::status::partial_content) {
      throw std::runtime_error(server_ + ": no range: " + std::to_string(parser.get().result_int()));
    }
    co_await http::async_read(stream_, buffer_, parser, use_awaitable);
    co_return parser.release();
  }

  Stream stream_;
  const std::string server_;
  boost::beast::flat_buffer buffer_;
};

std::string Sha256(const std::string& bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    std::array<char, 3> hex;
    std::snprintf(hex.data(), hex.size(), "%02x", digest[i]);
    text += hex.data();
  }
  return text;
}

// Runs task(0), task(1) and so on at the same time.
template <class Task>
void RunAll(asio::io_context& context, size_t tasks, Task task) {
  std::exception_ptr failed;
  for (size_t i = 0; i < tasks; ++i) {
    asio::co_spawn(context, task(i), [&failed](std::exception_ptr error) {
      if (error != nullptr) failed = error;
    });
  }
  context.restart();
  context.run();
  if (failed != nullptr) std::rethrow_exception(failed);
}

// Reads the object over connections with streams of `make`.
template <class Make>
void Read(const Flags& flags, asio::io_context& context, Make make) {
  using Stream = decltype(make());
  std::vector<std::unique_ptr<Connection<Stream>>> connections;
  for (const std::string& server : flags.servers) {
    connections.push_back(std::make_unique<Connection<Stream>>(make(), server));
  }
  RunAll(context, connections.size(), [&](size_t i) { return connections[i]->Open(); });

  std::string object;
  Version version;
  RunAll(context, 1,
         [&](size_t) -> asio::awaitable<void> { version = co_await connections[0]->FindVersion(flags.path); });
  const uint64_t object_bytes = version.bytes;

  std::vector<double> took_ms;
  for (int i = 0; i < flags.repeat; ++i) {
    object.assign(object_bytes, '\0');
    const Clock::time_point began = Clock::now();
    RunAll(context, connections.size(), [&](size_t i) -> asio::awaitable<void> {
      const uint64_t begin = object_bytes * i / connections.size();
      const uint64_t end = object_bytes * (i + 1) / connections.size();
      if (begin < end)
        co_await connections[i]->GetRange(flags.path, version, begin, end - begin, object.data() + begin);
    });
    took_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
    const std::string sum = Sha256(object);
    if (i == 0) std::cout << sum << "  " << flags.path << "\n";
    static const std::string first = sum;
    if (sum != first) throw std::runtime_error("the object has changed: " + sum);
  }
  double sum_ms = 0;
  for (const double ms : took_ms) sum_ms += ms;
  std::sort(took_ms.begin(), took_ms.end());
  std::printf("%llu bytes from %zu servers, %d times: %.1f Mbit/s, p50 %.1f ms, p99 %.1f ms\n",
              static_cast<unsigned long long>(object_bytes), connections.size(), flags.repeat,
              8e-3 * static_cast<double>(object_bytes) * flags.repeat / sum_ms, took_ms[took_ms.size() / 2],
              took_ms[took_ms.size() * 99 / 100]);
}

void Run(const Flags& flags) {
  asio::io_context context(1);
  asio::ssl::context tls(asio::ssl::context::tls_client);
  if (!flags.ca_file.empty()) {
    tls.load_verify_file(flags.ca_file);
    tls.set_verify_mode(asio::ssl::verify_peer);
  }
  // [snippet]
  sluice::LinkProfile profile;
  profile.capacity_bytes_per_second = flags.rate_mbps * 1e6 / 8;  // the last hop into this host
  profile.buffer_bytes = flags.buffer_kb << 10;                   // of the switch port that feeds it
  const std::shared_ptr<sluice::Link> link = sluice::Link::Create(profile).value();

  const auto scheduled = [&] { return sluice::LinkStream(context, link); };
  // [snippet]
  const auto direct = [&] { return tcp::socket(context); };
  const auto over_tls = [&tls](auto make) {
    return [&tls, make] { return asio::ssl::stream<decltype(make())>(make(), tls); };
  };
  if (flags.ca_file.empty()) {
    flags.direct ? Read(flags, context, direct) : Read(flags, context, scheduled);
  } else {
    flags.direct ? Read(flags, context, over_tls(direct)) : Read(flags, context, over_tls(scheduled));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Reads one object from many HTTP servers at once, a range from each.", "ranged_get");
  app.add_option("path", flags.path, "Path of the object, for example /object")->required();
  app.add_option("servers", flags.servers, "HOST:PORT of each server")->required();
  app.add_option("--ca", flags.ca_file, "Speak HTTPS, and verify the servers with this certificate");
  app.add_flag("--direct", flags.direct, "Use sockets of Asio instead of Sluice");
  app.add_option("--rate", flags.rate_mbps, "Mbit/s of the last hop into this host. Default 1000");
  app.add_option("--buffer", flags.buffer_kb, "KiB of the switch port in front of this host. Default 128");
  app.add_option("--repeat", flags.repeat, "Read the object this many times. Default 1")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    Run(flags);
  } catch (const std::exception& error) {
    std::cerr << "ranged_get: " << error.what() << "\n";
    return 1;
  }
  return 0;
}

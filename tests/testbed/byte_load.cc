// Reads blocks from byte_servers over plain connections or TLS, directly, through CONNECT or over a Link of its own,
// and compares each byte. A part of the test network, not installed.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>

#include "sluice/link_stream.h"
#include "sluice/v1/link_profile.pb.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/cli/link_profile_flags.h"
#include "lib/cli/program.h"
#include "tests/testbed/byte_message.h"
#include "tests/testbed/start_file.h"
#include "tests/testbed/tcp_endpoint.h"
#include "tools/json_report.h"
#include "tools/percentile.h"

namespace sluice::testbed {
namespace {

namespace asio = boost::asio;
using asio::use_awaitable;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

struct Flags {
  std::vector<std::string> workers;
  std::string via;
  bool library = false;
  std::string policy = "grants";
  v1::LinkProfile link;
  bool tls = false;
  uint32_t response_bytes = 10240;
  uint32_t most_response_bytes = 0;
  uint32_t think_us = 0;
  int64_t blocks = 100;
  int64_t warmup_blocks = 2;
  bool alone = false;
  std::string start_file;
};

asio::awaitable<void> Dial(tcp::socket& socket, tcp::endpoint to) {
  co_await socket.async_connect(to, use_awaitable);
  socket.set_option(tcp::no_delay(true));
}

asio::awaitable<void> Dial(LinkStream& stream, tcp::endpoint to) {
  co_await stream.async_connect(to.address().to_string(), to.port(), use_awaitable);
}

// One connection to a worker, and the stream over it. Socket is a socket of Asio or a LinkStream.
template <class Socket>
class WorkerStream {
 public:
  WorkerStream(Socket socket, asio::ssl::context* tls) : socket_(std::move(socket)) {
    if (tls != nullptr) tls_ = std::make_unique<asio::ssl::stream<Socket&>>(socket_, *tls);
  }

  asio::awaitable<void> Connect(const std::string& worker, const std::string& via) {
    co_await Dial(socket_, EndpointOf(via.empty() ? worker : via));
    if (!via.empty()) co_await AskForTunnel(worker);
    if (tls_ != nullptr) co_await tls_->async_handshake(asio::ssl::stream_base::client, use_awaitable);
  }

  asio::awaitable<void> Read(uint32_t bytes, uint32_t think_us) {
    return tls_ != nullptr ? Exchange(*tls_, bytes, think_us) : Exchange(socket_, bytes, think_us);
  }

 private:
  asio::awaitable<void> AskForTunnel(const std::string& worker) {
    const std::string request = absl::StrCat("CONNECT ", worker, " HTTP/1.1\r\nHost: ", worker, "\r\n\r\n");
    co_await asio::async_write(socket_, asio::buffer(request), use_awaitable);
    std::string response;
    co_await asio::async_read_until(socket_, asio::dynamic_buffer(response), "\r\n\r\n", use_awaitable);
    if (response.find(" 200 ") == std::string::npos) throw std::runtime_error("CONNECT: " + response);
  }

  template <class Stream>
  asio::awaitable<void> Exchange(Stream& stream, uint32_t bytes, uint32_t think_us) {
    const ByteRequest request{.response_bytes = bytes, .think_us = think_us, .padding = {}};
    co_await asio::async_write(stream, asio::buffer(&request, sizeof(request)), use_awaitable);
    response_.resize(bytes);
    co_await asio::async_read(stream, asio::buffer(response_), use_awaitable);
    if (const auto wrong = FirstWrongByte(response_)) {
      throw std::runtime_error(absl::StrCat("byte ", *wrong, " of ", bytes, " is wrong"));
    }
  }

  Socket socket_;
  std::unique_ptr<asio::ssl::stream<Socket&>> tls_;
  std::string response_;
};

// Reads from all workers over sockets of `make`. With barriers, a block begins when the one before is complete.
template <class Socket>
class Reader {
 public:
  template <class Make>
  Reader(const Flags& flags, Make make) : flags_(flags) {
    tls_.set_verify_mode(asio::ssl::verify_none);
    for (size_t i = 0; i < flags.workers.size(); ++i) {
      workers_.push_back(std::make_unique<WorkerStream<Socket>>(make(context_), flags.tls ? &tls_ : nullptr));
    }
  }

  void Connect() {
    ForAll([this](size_t i) { return workers_[i]->Connect(flags_.workers[i], flags_.via); });
  }
  void ReadBlocks(int64_t blocks) {
    took_ms_.clear();
    bytes_ = 0;
    if (flags_.alone) return ForAll([this, blocks](size_t i) { return ReadAlone(i, blocks); });
    for (int64_t block = 0; block < blocks; ++block) {
      const Clock::time_point began = Clock::now();
      ForAll([this](size_t i) { return workers_[i]->Read(DrawBytes(), flags_.think_us); });
      took_ms_.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
    }
  }
  const std::vector<double>& took_ms() const { return took_ms_; }
  double bytes() const { return bytes_; }

 private:
  template <class Task>
  void ForAll(Task task) {
    std::exception_ptr failed;
    for (size_t i = 0; i < workers_.size(); ++i) {
      asio::co_spawn(context_, task(i), [&failed](std::exception_ptr error) {
        if (error != nullptr) failed = error;
      });
    }
    context_.restart();
    context_.run();
    if (failed != nullptr) std::rethrow_exception(failed);
  }

  asio::awaitable<void> ReadAlone(size_t i, int64_t blocks) {
    for (int64_t block = 0; block < blocks; ++block) {
      const Clock::time_point began = Clock::now();
      co_await workers_[i]->Read(DrawBytes(), flags_.think_us);
      took_ms_.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
    }
  }

  // Log-uniform between both sizes, if there are two.
  uint32_t DrawBytes() {
    uint32_t bytes = flags_.response_bytes;
    if (flags_.most_response_bytes > bytes) {
      std::uniform_real_distribution<double> exponent(std::log(bytes), std::log(flags_.most_response_bytes));
      bytes = static_cast<uint32_t>(std::exp(exponent(random_)));
    }
    bytes_ += bytes;
    return bytes;
  }

  const Flags& flags_;
  asio::io_context context_{1};
  asio::ssl::context tls_{asio::ssl::context::tls_client};
  std::vector<std::unique_ptr<WorkerStream<Socket>>> workers_;
  std::mt19937 random_{1};
  std::vector<double> took_ms_;
  double bytes_ = 0;
};

template <class Socket, class Make>
absl::Status Read(const Flags& flags, Make make) {
  try {
    Reader<Socket> reader(flags, make);
    reader.Connect();
    reader.ReadBlocks(flags.warmup_blocks);
    if (absl::Status status = AwaitStartFile(flags.start_file); !status.ok()) return status;
    const Clock::time_point began = Clock::now();
    reader.ReadBlocks(flags.blocks);
    const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
    return WriteJsonReport("-", {{"goodput_bps", 8 * reader.bytes() / seconds},
                                 {"blocks", static_cast<double>(flags.blocks)},
                                 {"seconds", seconds},
                                 {"block_p50_ms", Percentile(reader.took_ms(), 0.5)},
                                 {"block_p99_ms", Percentile(reader.took_ms(), 0.99)}});
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

absl::Status Run(const Flags& flags) {
  if (!flags.library) {
    return Read<tcp::socket>(flags, [](asio::io_context& context) { return tcp::socket(context); });
  }
  const absl::StatusOr<LinkProfile> profile = ParseLinkProfile(flags.link);
  if (!profile.ok()) return profile.status();
  const absl::StatusOr<SchedulePolicy> policy = ParseSchedulePolicy(flags.policy);
  if (!policy.ok()) return policy.status();
  const auto link = Link::Create(Link::Options{.schedule = {.profile = *profile, .policy = *policy}});
  if (!link.ok()) return link.status();
  return Read<LinkStream>(flags, [&](asio::io_context& context) { return LinkStream(context, *link); });
}

}  // namespace
}  // namespace sluice::testbed

int main(int argc, char** argv) {
  sluice::testbed::Flags flags;
  return sluice::RunProgram(
      argc, argv,
      {.name = "byte_load",
       .description = "Reads blocks from byte_servers, and tells how long they took.",
       .add_flags =
           [&](CLI::App& app) {
             app.add_option("--workers", flags.workers, "Addresses of the servers")->delimiter(',')->required();
             app.add_option("--via", flags.via, "A proxy to ask for tunnels by CONNECT. Default: connect directly");
             app.add_flag("--library", flags.library, "Connect over a Link");
             app.add_option("--policy", flags.policy, "Policy of the Link. Default grants");
             sluice::AddLinkProfileFlags(app, flags.link);
             app.add_flag("--tls", flags.tls, "Speak TLS to the servers");
             app.add_option("--response_bytes", flags.response_bytes, "Size of a response. Default 10240");
             app.add_option("--most_response_bytes", flags.most_response_bytes,
                            "Draw sizes up to this one. Default: all are equal");
             app.add_option("--think_us", flags.think_us, "How long a server thinks. Default 0");
             app.add_option("--blocks", flags.blocks, "Blocks to read. Default 100");
             app.add_option("--warmup_blocks", flags.warmup_blocks, "Blocks before them. Default 2");
             app.add_flag("--alone", flags.alone, "Each worker goes on by itself, without blocks");
             app.add_option("--start_file", flags.start_file, "Begin once this file exists");
           },
       .configure = [] { return absl::OkStatus(); },
       .run = [&] { return sluice::testbed::Run(flags); }});
}

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>  // Boost 1.74 misses it in C++20
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "absl/functional/function_ref.h"
#include "lib/http2/session.h"
#include "tests/unit/grpc_wire/server_call.h"
#include "tests/unit/tls/tls_end.h"
#include "tests/watched.h"

namespace sluice::testing {

// A test server that speaks gRPC's protocol with Sluice's Http2Session, over loopback, on its own thread. The test
// decides its behaviour, which may differ from any gRPC server: it may send handmade frames. ThreadSanitizer sees all
// of it, but little of gRPC. Its methods are thread-safe. Use its connections only on its thread, which also runs
// handlers and tasks.
class TestHttp2Server {
 public:
  class Connection;

  // A request and its response.
  class Call final : public ServerCall {
   public:
    Call(Connection& connection, int32_t stream);

    TestHttp2Server& server();
    Connection& connection() { return connection_; }
    const std::string& path() const { return head().path; }
    // Sends frames unchanged, after the bytes sent before. After its own frames, a handler must not send through the
    // session.
    void SendFrames(const std::string& frames);
    // Returns the bytes of DATA that the client lets it send now.
    int64_t window_bytes() const;

    // A handler may set these. They are not called after the stream has closed.
    std::function<void()> on_writable;  // the data that SendData kept has been sent
    std::function<void(StreamEnd)> on_closed;

   private:
    void OnRequest() override;
    void OnWritable() override;
    void OnGone(StreamEnd end) override;

    Connection& connection_;
  };
  // Called for each complete request. Calls live as long as the server.
  using Handler = std::function<void(Call& call)>;

  struct Options {
    int port = 0;  // of 127.0.0.1; 0: a free port
    uint32_t max_concurrent_streams = 1u << 16;
    std::optional<TlsServerEnd::Options> tls;  // none: plaintext
  };
  struct Counts {
    int connections = 0;  // accepted
    int open_connections = 0;
    int requests = 0;  // complete ones
    int resets = 0;    // RST_STREAM frames
  };

  explicit TestHttp2Server(Handler handler, const Options& options);
  explicit TestHttp2Server(Handler handler) : TestHttp2Server(std::move(handler), Options()) {}
  ~TestHttp2Server();  // closes its connections, which ends their calls
  TestHttp2Server(const TestHttp2Server&) = delete;
  TestHttp2Server& operator=(const TestHttp2Server&) = delete;

  std::string address() const;
  int port() const { return port_; }

  void Run(absl::FunctionRef<void()> task);  // on its thread; waits for it
  // Runs the task on its thread; never if the server is destroyed before.
  void RunAfter(std::chrono::nanoseconds delay, std::function<void()> task);
  // Returns false if the condition did not become true in time.
  bool Await(const std::function<bool(const Counts&)>& condition) { return counts_.Await(condition); }
  bool AwaitRequests(int requests) {
    return Await([requests](const Counts& counts) { return counts.requests == requests; });
  }
  Counts counts() const { return counts_.Get(); }

  // Use it in Run.
  const std::vector<std::unique_ptr<Call>>& calls() const { return calls_; }  // with complete requests, in their order

 private:
  void Accept();
  void Take(std::unique_ptr<Call> call);
  void Flush();

  const Handler handler_;
  const Options options_;
  Watched<Counts> counts_;
  boost::asio::io_context context_{1};
  int port_ = 0;

  // Used on the thread only.
  boost::asio::ip::tcp::acceptor acceptor_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Call>> calls_;

  std::thread thread_;  // last, since it uses all other members
};

}  // namespace sluice::testing

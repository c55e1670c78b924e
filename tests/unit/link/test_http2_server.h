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

// A server of a test that speaks gRPC's protocol on our own Http2Session, over loopback, on a thread of its own. It
// does what the test says, also what no gRPC server would do: frames may be made by hand. Nothing of it is hidden from
// ThreadSanitizer, which sees little of gRPC. Its methods are thread-safe; what belongs to its connections is for its
// thread only, which is where handlers and tasks run.
class TestHttp2Server {
 public:
  class Connection;

  // A request and its answer.
  class Call final : public ServerCall {
   public:
    Call(Connection& connection, int32_t stream);

    TestHttp2Server& server();
    Connection& connection() { return connection_; }
    const std::string& path() const { return head().path; }
    // As it is, behind what was sent before. A handler sends no parts of the session's behind frames of its own.
    void SendFrames(const std::string& frames);
    // Bytes of DATA that the client lets it send now.
    int64_t window_bytes() const;

    // For a handler to set. Neither is called once the stream has closed.
    std::function<void()> on_writable;  // what SendData said it keeps has left
    std::function<void(StreamEnd)> on_closed;

   private:
    void OnRequest() override;
    void OnWritable() override;
    void OnGone(StreamEnd end) override;

    Connection& connection_;
  };
  // Called for each request, when all of it is here. Calls live as long as the server.
  using Handler = std::function<void(Call& call)>;

  struct Options {
    int port = 0;  // of 127.0.0.1; 0: a free one
    uint32_t max_concurrent_streams = 1u << 16;
    std::optional<TlsServerEnd::Options> tls;  // none: in the clear
  };
  struct Counts {
    int connections = 0;  // accepted
    int open_connections = 0;
    int requests = 0;  // all of which are here
    int resets = 0;    // RST_STREAM frames
  };

  explicit TestHttp2Server(Handler handler, const Options& options);
  explicit TestHttp2Server(Handler handler) : TestHttp2Server(std::move(handler), Options()) {}
  ~TestHttp2Server();  // closes its connections: the calls hear of it
  TestHttp2Server(const TestHttp2Server&) = delete;
  TestHttp2Server& operator=(const TestHttp2Server&) = delete;

  std::string address() const;
  int port() const { return port_; }

  void Run(absl::FunctionRef<void()> task);  // on its thread; waits for it
  // On its thread; never, where the server is gone by then.
  void RunAfter(std::chrono::nanoseconds delay, std::function<void()> task);
  // False where it did not come true in time.
  bool Await(const std::function<bool(const Counts&)>& condition) { return counts_.Await(condition); }
  bool AwaitRequests(int requests) {
    return Await([requests](const Counts& counts) { return counts.requests == requests; });
  }
  Counts counts() const { return counts_.Get(); }

  // In Run.
  const std::vector<std::unique_ptr<Call>>& calls() const { return calls_; }  // whose requests are here, in their order

 private:
  void Accept();
  void Take(std::unique_ptr<Call> call);
  void Flush();

  const Handler handler_;
  const Options options_;
  Watched<Counts> counts_;
  boost::asio::io_context context_{1};
  int port_ = 0;

  // The thread's.
  boost::asio::ip::tcp::acceptor acceptor_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Call>> calls_;

  std::thread thread_;  // last: it uses all the others
};

}  // namespace sluice::testing

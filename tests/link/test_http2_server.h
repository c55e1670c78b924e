#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"

namespace sluice::testing {

// A server of a test that speaks gRPC's protocol on our own Http2Session, over loopback, on a thread of its own. It
// does what the test says, also what no gRPC server would do: frames may be made by hand. Its methods are thread-safe;
// what belongs to its connections is for its thread only, which is where handlers and the tasks of Run are.
class TestHttp2Server {
 public:
  class Connection;

  // A request and its answer.
  class Call : private StreamEvents {
   public:
    Call(Connection& connection, int32_t stream) : connection_(connection), stream_(stream) {}

    int32_t stream() const { return stream_; }
    Connection& connection() { return connection_; }
    const std::string& path() const { return path_; }
    bool closed() const { return closed_; }

    void Answer(absl::string_view message);  // all of it: head, message, trailers
    void Fail(const absl::Status& status);   // trailers alone
    // The parts of an answer, in their order. A handler sends no parts of the session's behind frames of its own.
    void SendHead();
    void SendData(std::string bytes);            // as far as the window lets it
    void SendFrames(const std::string& frames);  // as they are, behind what was sent before
    void SendTrailers(const absl::Status& status = absl::OkStatus());
    void Reset(Http2Error error);

    // Bytes of DATA that the client lets it send now.
    int64_t window_bytes() const;

   private:
    friend class TestHttp2Server;
    friend class Connection;
    void OnHeaders(HeaderList headers, bool end_stream) override;
    void OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) override;
    void OnClosed(StreamEnd) override { closed_ = true; }

    Connection& connection_;
    const int32_t stream_;
    std::string path_;
    bool closed_ = false;
  };
  // Called for each request, when all of it is here. Calls live as long as the server.
  using Handler = std::function<void(Call& call)>;

  struct Options {
    int port = 0;  // of 127.0.0.1; 0: a free one
    uint32_t max_concurrent_streams = 1u << 16;
  };
  struct Counts {
    int connections = 0;  // accepted
    int open_connections = 0;
    int requests = 0;  // all of which are here
    int resets = 0;    // RST_STREAM frames
  };

  explicit TestHttp2Server(Handler handler, const Options& options);
  explicit TestHttp2Server(Handler handler) : TestHttp2Server(std::move(handler), Options()) {}
  ~TestHttp2Server();
  TestHttp2Server(const TestHttp2Server&) = delete;
  TestHttp2Server& operator=(const TestHttp2Server&) = delete;

  std::string address() const;
  int port() const { return port_; }

  void Run(absl::FunctionRef<void()> task);  // on its thread; waits for it
  // False where it did not come true in time.
  bool Await(const std::function<bool(const Counts&)>& condition);
  bool AwaitRequests(int requests) {
    return Await([requests](const Counts& counts) { return counts.requests == requests; });
  }
  Counts counts() const;

  // In Run.
  const std::vector<std::unique_ptr<Call>>& calls() const { return calls_; }  // whose requests are here, in their order

 private:
  void Loop();
  void Accept();
  void Wake();
  void Count(absl::FunctionRef<void(Counts&)> change);
  void Take(std::unique_ptr<Call> call);

  const Handler handler_;
  const Options options_;
  int listener_ = -1;
  int port_ = 0;
  int wake_ = -1;  // an eventfd

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Counts counts_;                             // guarded by mutex_
  std::vector<std::function<void()>> tasks_;  // guarded by mutex_
  bool stopping_ = false;                     // guarded by mutex_

  // The thread's.
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Call>> calls_;

  std::thread thread_;  // last: it uses all the others
};

// One connection that the server has accepted. For the server's thread only.
class TestHttp2Server::Connection final : private SessionEvents {
 public:
  Connection(TestHttp2Server& server, int fd, uint32_t max_concurrent_streams);
  ~Connection() override;

  Http2Session& session() { return *session_; }
  void SendFrames(const std::string& frames);  // as they are, behind what was sent before
  // Resets the connection, without a word.
  void Break();

  int fd() const { return fd_; }
  bool over() const { return fd_ < 0; }
  void OnReadable();
  void Flush();

 private:
  friend class Call;
  StreamEvents* OnStream(int32_t stream) override;
  void Send(absl::string_view bytes);
  void Watch(absl::string_view bytes);

  TestHttp2Server& server_;
  int fd_;
  std::unique_ptr<Http2Session> session_;
  bool receiving_now_ = false;                          // the session gives nothing out within its events
  std::string frames_;                                  // of SendFrames, that follow what the session gives out
  std::map<int32_t, std::unique_ptr<Call>> receiving_;  // requests of which there is more to come

  // What the client's frames say about the windows of its streams.
  std::string unread_;
  bool preface_read_ = false;
  int64_t first_window_bytes_ = 65535;
  std::map<int32_t, int64_t> widened_bytes_;
  std::map<int32_t, int64_t> sent_bytes_;
};

}  // namespace sluice::testing

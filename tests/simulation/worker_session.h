#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"
#include "tests/unit/grpc_wire/server_call.h"

namespace sluice::testing {

// What a request asks a simulated worker for: so many messages of the same size.
struct Question {
  uint64_t key = 0;
  size_t bytes = 0;
  size_t messages = 1;
  bool streaming = false;  // the method is one of server streaming
  bool taken = true;       // false: the client reads nothing, so the answer may wait for as long as it likes
};
std::string RequestFor(const Question& question);

// One connection to a client as a simulated worker serves it: a gRPC server on our own HTTP/2 session, bytes in, bytes
// out. When and what it answers, and over which network, is up to the class that derives from it. Not thread-safe.
class WorkerSession : public SessionEvents {
 public:
  WorkerSession();
  ~WorkerSession() override;

  absl::Status Begin(uint32_t max_concurrent_streams);
  void OnBytes(absl::string_view bytes);
  void OnClientGone();

 protected:
  // A request is here. An answer may follow at any time, within this call or later.
  virtual void Serve(int32_t stream, const Question& question, absl::Duration timeout) = 0;
  virtual void OnGone(int32_t stream) = 0;
  virtual void Write(std::string bytes) = 0;
  // What the client sends is not HTTP/2.
  virtual void Lose() = 0;

  StreamEvents* OnStream(int32_t stream) override;

  // All of an answer of `size` zeros.
  void Answer(int32_t stream, size_t size);
  void Finish(int32_t stream, const absl::Status& status);
  // Writes what the session has to say.
  void Flush();

  Http2Session* session() { return session_.get(); }  // null once the client is gone
  bool HasStream(int32_t stream) const { return streams_.contains(stream); }
  size_t streams() const { return streams_.size(); }

 private:
  class Stream;

  void Gone(int32_t stream);

  std::unique_ptr<Http2Session> session_;
  std::map<int32_t, std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Stream>> gone_;  // destroyed once nothing of them is on the stack
};

}  // namespace sluice::testing

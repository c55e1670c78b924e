#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"
#include "tests/unit/grpc_wire/server_call.h"

namespace sluice::testing {

// A request to a simulated worker: for `messages` messages of `bytes` each.
struct Question {
  uint64_t key = 0;
  size_t bytes = 0;
  size_t messages = 1;
  bool streaming = false;  // the method has server streaming
  // False: the client reads nothing, so the response may wait for any time.
  bool taken = true;
  // For the checks of the oracle.
  uint64_t block = 0;  // the number of its fan-out; 0: the checks do not apply
  size_t traffic_class = 0;
  int64_t deadline_ns = 0;  // of its fan-out, in virtual time
};
std::string RequestFor(const Question& question);
// Reads the message of a request; nothing if it is not one.
std::optional<Question> ParseQuestion(absl::string_view message);

// One connection of a client, as a simulated worker serves it: a gRPC server on Sluice's HTTP/2 session, bytes in,
// bytes out. The derived class decides when and how to respond, and over which network. Not thread-safe.
class WorkerSession : public SessionEvents {
 public:
  WorkerSession();
  ~WorkerSession() override;

  absl::Status Begin(uint32_t max_concurrent_streams);
  void OnBytes(absl::string_view bytes);
  void OnClientGone();

 protected:
  // Called when a request has arrived. The response may follow at any time, within this call or later.
  virtual void Serve(int32_t stream, const Question& question, absl::Duration timeout) = 0;
  virtual void OnGone(int32_t stream) = 0;
  virtual void Write(std::string bytes) = 0;
  // Called if the bytes of the client are not HTTP/2.
  virtual void Lose() = 0;

  StreamEvents* OnStream(int32_t stream) override;

  // Sends a whole response of `size` zeros.
  void Answer(int32_t stream, size_t size);
  void Finish(int32_t stream, const absl::Status& status);
  // Writes the output of the session.
  void Flush();

  Http2Session* session() { return session_.get(); }  // null once the client is gone
  bool HasStream(int32_t stream) const { return streams_.contains(stream); }
  size_t streams() const { return streams_.size(); }

 private:
  class Stream;

  void Gone(int32_t stream);

  std::unique_ptr<Http2Session> session_;
  std::map<int32_t, std::unique_ptr<Stream>> streams_;
  // Streams that have closed. They are deleted once none of their functions is on the stack.
  std::vector<std::unique_ptr<Stream>> gone_;
};

}  // namespace sluice::testing

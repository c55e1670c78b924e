#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"
#include "lib/net/executor.h"

namespace sluice::testing {

// A server of a test, with blocking sockets on a thread of its own: it serves one connection after the other.
class TestListener {
 public:
  // Given a connection, which is closed when it returns.
  using Serve = std::function<void(int fd)>;

  // On a free port of "127.0.0.1:0" or "[::1]:0", or at a Unix socket; "unix-abstract:" gets a name of its own.
  TestListener(const std::string& address, Serve serve);
  ~TestListener();  // ends the connection that is served
  TestListener(const TestListener&) = delete;
  TestListener& operator=(const TestListener&) = delete;

  const WorkerAddress& address() const { return address_; }

 private:
  void Run();

  const Serve serve_;
  WorkerAddress address_;
  int listener_ = -1;
  std::mutex mutex_;
  int connection_ = -1;   // guarded by mutex_
  bool closing_ = false;  // guarded by mutex_
  std::thread thread_;
};

// For `Serve`.
void SendAll(int fd, absl::string_view bytes);
std::string ReceiveAtLeast(int fd, size_t bytes);  // fewer at the end of the stream
std::string ReceiveAll(int fd);                    // until its end
// Sends by TCP until the other side has taken no more for half a second, or `most_bytes`. Returns what it has taken.
size_t SendUntilFull(int fd, size_t most_bytes);
void Reset(int fd);  // ends with an RST when it is closed

// An address of loopback where nobody listens.
WorkerAddress AddressOfNobody();

}  // namespace sluice::testing

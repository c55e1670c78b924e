#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/net/executor.h"

namespace sluice::testing {

// A test server with blocking sockets on its own thread: it serves one connection after the other.
class TestListener {
 public:
  // Serves one connection, which is closed when the function returns.
  using Serve = std::function<void(int fd)>;

  // Listens on a free port of "127.0.0.1:0" or "[::1]:0", or at a Unix socket; "unix-abstract:" gets a unique name.
  TestListener(const std::string& address, Serve serve);
  ~TestListener();  // ends the current connection
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

// A loopback address that drops SYNs, as a host that is down does: its queue of connections is full.
class SilentAddress {
 public:
  explicit SilentAddress(const std::string& address = "127.0.0.1:0");  // or "[::1]:0"
  ~SilentAddress();
  SilentAddress(const SilentAddress&) = delete;
  SilentAddress& operator=(const SilentAddress&) = delete;

  const WorkerAddress& address() const { return address_; }

 private:
  WorkerAddress address_;
  std::vector<int> sockets_;
};

// Helpers for `Serve`.
void SendAll(int fd, absl::string_view bytes);
std::string ReceiveAtLeast(int fd, size_t bytes);  // fewer at the end of the stream
std::string ReceiveAll(int fd);                    // until its end
// Reads until the end of the stream. Returns "end", or the error that broke the stream: "reset" or "error".
std::string HowItEnds(int fd);
// Sends over TCP until the peer has accepted nothing for half a second, or `most_bytes` are sent. Returns the accepted
// bytes.
size_t SendUntilFull(int fd, size_t most_bytes);
void Reset(int fd);  // closing then sends an RST

// Returns a loopback address on which no process listens.
WorkerAddress AddressOfNobody();

}  // namespace sluice::testing

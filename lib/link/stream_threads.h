#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lib/link/executor.h"

namespace sluice {

class AsioExecutor;

// More threads for one link: they read and write its sockets, and encrypt. What the bytes mean, and the one schedule of
// all, stays on the link's thread; bytes go from thread to thread by copies, in their order. One a link, if any.
class StreamThreads {
 public:
  // `link` runs the link's thread and outlives this. At least one thread.
  StreamThreads(AsioExecutor& link, size_t threads);
  ~StreamThreads();  // as Stop
  StreamThreads(const StreamThreads&) = delete;
  StreamThreads& operator=(const StreamThreads&) = delete;

  // As Executor::Connect: on the link's thread. The threads take turns.
  std::unique_ptr<StreamSocket> Connect(const WorkerAddress& address, std::shared_ptr<const TlsContext> tls,
                                        const std::string& server_name, StreamSocketEvents& events);

  // Closes what was dropped and ends the threads. Not on any of them. Twice is harmless.
  void Stop();

 private:
  AsioExecutor& link_;
  std::vector<std::unique_ptr<AsioExecutor>> threads_;
  size_t next_ = 0;
  bool stopped_ = false;
};

}  // namespace sluice

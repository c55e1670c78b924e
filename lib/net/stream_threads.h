#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lib/net/executor.h"

namespace sluice {

class AsioExecutor;

// More threads for one link: they read and write its sockets, and encrypt. HTTP/2, the calls and the one schedule stay
// on the link's thread. Bytes pass between the threads as copies, in order. At most one for each link.
class StreamThreads {
 public:
  // `link` runs the link's thread and must outlive this. At least one thread.
  StreamThreads(AsioExecutor& link, size_t threads);
  ~StreamThreads();  // as Stop
  StreamThreads(const StreamThreads&) = delete;
  StreamThreads& operator=(const StreamThreads&) = delete;

  // As Executor::Connect, called on the link's thread. Streams are assigned to the threads in turn.
  std::unique_ptr<StreamSocket> Connect(const WorkerAddress& address, const Executor::ConnectOptions& options,
                                        StreamSocketEvents& events);

  // Closes streams that were dropped and ends the threads. Do not call it on one of them. A second call does nothing.
  void Stop();

 private:
  AsioExecutor& link_;
  std::vector<std::unique_ptr<AsioExecutor>> threads_;
  size_t next_ = 0;
  bool stopped_ = false;
};

}  // namespace sluice

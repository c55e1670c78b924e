#pragma once

#include <memory>

namespace boost::asio {
class io_context;
}

namespace sluice {

// Waits for SIGTERM or SIGINT. There is one for each process, made before the servers start, destroyed before its
// io_context. A second signal has its default action again: it ends a process that takes too long to drain.
class TerminationSignal {
 public:
  explicit TerminationSignal(boost::asio::io_context& context);
  ~TerminationSignal();
  TerminationSignal(const TerminationSignal&) = delete;
  TerminationSignal& operator=(const TerminationSignal&) = delete;

  // Blocks until the signal and returns its number. Call it on any thread except that of the io_context, which must
  // run.
  int Wait();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace sluice

#pragma once

#include <thread>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

namespace sluice {

// The thread for all work other than RPCs: timers, signals, the admin server. One for each process is enough. Any
// thread may use the context; its handlers run on this thread alone, so they need no lock.
class IoThread {
 public:
  IoThread();
  ~IoThread();  // stops at once and joins; handlers that have not run are destroyed
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  boost::asio::io_context& context() { return context_; }

  // Stops and joins, for an owner whose timers must be destroyed before the context. A second call does nothing.
  void Stop();

 private:
  boost::asio::io_context context_{1};  // a hint: one thread runs it
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::thread thread_;
};

}  // namespace sluice

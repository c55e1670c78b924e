#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>  // Boost 1.74 misses it in C++20
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "sluice/time_point.h"

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "lib/net/executor.h"
#include "lib/net/look_up_threads.h"
#include "lib/net/stream_threads.h"

namespace sluice {

// The real executor: a thread that runs an event loop. There is one for each link. Its users drop streams and look-ups
// on its thread, or after Stop, and always before they destroy the executor.
class AsioExecutor final : public Executor {
 public:
  struct Options {
    // Called on the link's thread with the lateness of each timer, 0 or more, before the timer's task. May be null.
    std::function<void(std::chrono::nanoseconds)> on_timer_lateness;
    // Number of threads that carry the streams. 0: the link's thread carries them.
    size_t stream_threads = 0;
    // Number of streams that may stall (ConnectOptions::may_stall, and all accepted ones) above which further ones are
    // probed rarely while they are idle: see Stream::LetStall.
    int64_t often_probed_streams = 1000;
    // Looks up the addresses of a host, on a different thread, where it may block. Null: getaddrinfo does. For tests.
    std::function<absl::StatusOr<std::vector<WorkerAddress>>(const std::string& host, int port)> look_up = nullptr;
  };

  AsioExecutor() : AsioExecutor(Options()) {}
  explicit AsioExecutor(Options options);
  ~AsioExecutor() override;  // as Stop
  AsioExecutor(const AsioExecutor&) = delete;
  AsioExecutor& operator=(const AsioExecutor&) = delete;

  // Ends the thread after the tasks that it runs now. Nothing is called from then on, and tasks that have not run are
  // destroyed. Do not call it on the link's thread. A second call does nothing.
  void Stop();

  // Runs `task` on the link's thread and waits for it; on that thread it runs it at once. Do not call it after Stop.
  void Await(absl::FunctionRef<void()> task);
  // Returns whether the caller runs on the link's thread.
  bool IsThisThread() const { return std::this_thread::get_id() == thread_.get_id(); }

  // For other work on the link's thread. Its handlers are part of turns, too.
  boost::asio::io_context& context() { return context_; }

  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
  void Post(std::function<void()> task) override;
  void SetEndOfTurn(std::function<void()> task) override { end_of_turn_ = std::move(task); }
  void SetTimer(TimePoint time, std::function<void()> task) override;
  double Random() override { return std::uniform_real_distribution<double>()(random_); }
  // Looks names up by getaddrinfo on other threads (LookUpThreads). The destructor waits for pending look-ups, since
  // getaddrinfo cannot be cancelled.
  std::shared_ptr<void> Resolve(const std::string& target, OnResolved on_resolved) override;
  std::unique_ptr<StreamSocket> Connect(const WorkerAddress& address, const ConnectOptions& options,
                                        StreamSocketEvents& events) override;

  LookUpThreads& look_ups() { return look_ups_; }
  const Options& options() const { return options_; }

  // Buffers for streams, used on the link's thread. All streams share them, since most are idle at any moment.
  absl::Span<char> read_buffer() { return {read_buffer_.get(), kReadBufferBytes}; }
  std::string& plaintext_buffer() { return plaintext_buffer_; }
  // Each stream that may stall holds a copy.
  const std::shared_ptr<const void>& stalling_streams() const { return stalling_streams_; }
  // The number of the current turn.
  uint64_t turn() const { return turn_; }
  // Runs `task` at the end of this turn, after its output has left. Use it for work that can wait and would delay that
  // output.
  void AfterOutput(std::function<void()> task) { after_output_.push_back(std::move(task)); }
  // Runs `task` in the next turn.
  void NextTurn(std::function<void()> task) { next_turn_.push_back(std::move(task)); }
  // Run `step` of a TLS handshake in a turn that runs no other such step. A key exchange takes as long as a hundred
  // calls. A crowd of new clients, or of workers that all reconnect, must not delay established connections. Handshakes
  // with workers come first: the budget of the link bounds them, while any number of clients may connect.
  void QueueWorkerHandshake(std::function<void()> step) { worker_handshakes_.push_back(std::move(step)); }
  void QueueClientHandshake(std::function<void()> step) { client_handshakes_.push_back(std::move(step)); }

 private:
  static constexpr size_t kReadBufferBytes = size_t{256} * 1024;

  void Run();
  void RunPosted();
  void EndTurn();
  void ArmTimer();
  void OnTimer();

  const Options options_;
  boost::asio::io_context context_{1};  // a hint: one thread runs it
  const boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;

  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;  // guarded by mutex_
  bool stopped_ = false;                       // guarded by mutex_

  // The members below are used on the link's thread only.
  std::vector<std::function<void()>> running_;
  std::vector<std::function<void()>> after_output_;
  std::vector<std::function<void()>> next_turn_;
  std::deque<std::function<void()>> worker_handshakes_;
  std::deque<std::function<void()>> client_handshakes_;
  std::function<void()> end_of_turn_;
  uint64_t turn_ = 0;

  boost::asio::steady_timer timer_;
  TimePoint armed_for_ = TimePoint::max();  // may be before timer_time_; max: not armed
  uint64_t arming_ = 0;                     // distinguishes the handler of the last arming from earlier ones
  TimePoint timer_time_ = TimePoint::max();
  std::function<void()> timer_task_;

  std::mt19937_64 random_{std::random_device()()};
  const std::shared_ptr<const void> stalling_streams_ = std::make_shared<char>();
  const std::unique_ptr<char[]> read_buffer_;
  std::string plaintext_buffer_;

  const std::unique_ptr<StreamThreads> stream_threads_;  // may be null
  LookUpThreads look_ups_;

  std::thread thread_;  // last: it uses all the others
};

}  // namespace sluice

#include "lib/net/asio_executor.h"

#include <algorithm>
#include <future>

#include <boost/asio/post.hpp>
#include <pthread.h>

#include "lib/net/asio_resolution.h"
#include "lib/net/asio_stream.h"

namespace sluice {
namespace {}  // namespace

AsioExecutor::AsioExecutor(Options options)
    : options_(std::move(options)),
      work_(boost::asio::make_work_guard(context_)),
      timer_(context_),
      read_buffer_(std::make_unique<char[]>(kReadBufferBytes)),
      stream_threads_(options_.stream_threads > 0 ? std::make_unique<StreamThreads>(*this, options_.stream_threads)
                                                  : nullptr),
      thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "sluice-link");
}

AsioExecutor::~AsioExecutor() {
  Stop();
}

void AsioExecutor::Stop() {
  context_.stop();
  if (thread_.joinable()) thread_.join();
  if (stream_threads_ != nullptr) stream_threads_->Stop();
  look_ups_.Stop();
  std::vector<std::function<void()>> unrun;  // destroyed without the lock, since a destructor may post
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    unrun.swap(posted_);
  }
  running_.clear();
  after_output_.clear();
  next_turn_.clear();
  worker_handshakes_.clear();
  client_handshakes_.clear();
  end_of_turn_ = nullptr;
  timer_task_ = nullptr;
}

// io_context::run would suffice, except for the end of a turn, which comes after the handlers that are ready when the
// turn begins. Rejected: to continue while any handler is ready. A response that arrives packet by packet keeps the
// loop busy until nothing is in flight, and its next grant waits for that.
void AsioExecutor::Run() {
  while (context_.run_one() > 0) {
    bool last = false;
    boost::asio::post(context_, [&last] { last = true; });
    while (!last && context_.poll_one() > 0) {
    }
    if (!context_.stopped()) EndTurn();
  }
}

void AsioExecutor::EndTurn() {
  if (end_of_turn_) end_of_turn_();
  for (const std::function<void()>& task : after_output_) task();
  after_output_.clear();
  ++turn_;
  for (std::function<void()>& task : next_turn_) Post(std::move(task));
  next_turn_.clear();
  std::deque<std::function<void()>>& handshakes = worker_handshakes_.empty() ? client_handshakes_ : worker_handshakes_;
  if (handshakes.empty()) return;
  Post(std::move(handshakes.front()));
  handshakes.pop_front();
}

void AsioExecutor::Post(std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_) return;
    posted_.push_back(std::move(task));
    if (posted_.size() > 1) return;  // the first task has woken the loop
  }
  boost::asio::post(context_, [this] { RunPosted(); });
}

void AsioExecutor::RunPosted() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_.swap(posted_);
  }
  for (std::function<void()>& task : running_) {
    task();
    task = nullptr;  // frees the objects that the task holds, in order
  }
  running_.clear();
}

void AsioExecutor::Await(absl::FunctionRef<void()> task) {
  if (IsThisThread()) return task();
  const auto done = std::make_shared<std::promise<void>>();
  Post([task, done] {
    task();
    done->set_value();
  });
  done->get_future().wait();
}

// The time of the timer changes with every event, mostly to a later time. The armed timer then stays as it is, and
// OnTimer checks the time again: one wake-up for many changes, instead of a system call for each.
void AsioExecutor::SetTimer(TimePoint time, std::function<void()> task) {
  timer_time_ = time;
  timer_task_ = std::move(task);
  if (time < armed_for_) ArmTimer();
}

void AsioExecutor::ArmTimer() {
  armed_for_ = timer_time_;
  timer_.expires_at(timer_time_);
  timer_.async_wait([this, arming = ++arming_](const boost::system::error_code& error) {
    if (!error && arming == arming_) OnTimer();
  });
}

void AsioExecutor::OnTimer() {
  armed_for_ = TimePoint::max();
  if (timer_time_ == TimePoint::max()) return;
  const TimePoint now = Now();
  if (now < timer_time_) return ArmTimer();
  if (options_.on_timer_lateness) options_.on_timer_lateness(now - timer_time_);
  timer_time_ = TimePoint::max();
  const std::function<void()> task = std::exchange(timer_task_, nullptr);
  if (task) task();
}

std::shared_ptr<void> AsioExecutor::Resolve(const std::string& target, OnResolved on_resolved) {
  return StartResolution(*this, target, std::move(on_resolved));
}

std::unique_ptr<StreamSocket> AsioExecutor::Connect(const WorkerAddress& address, const ConnectOptions& options,
                                                    StreamSocketEvents& events) {
  if (stream_threads_ != nullptr) return stream_threads_->Connect(address, options, events);
  return ConnectStream(*this, address, options, events);
}

}  // namespace sluice

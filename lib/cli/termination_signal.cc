#include "lib/cli/termination_signal.h"

#include <csignal>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>

#include "absl/synchronization/notification.h"

namespace sluice {

// The state is shared with the handler, which may still be queued when the owner is destroyed.
struct TerminationSignal::State {
  explicit State(boost::asio::io_context& context) : context(context), signals(context, SIGTERM, SIGINT) {}

  boost::asio::io_context& context;
  boost::asio::signal_set signals;  // used after construction only on the thread of the io_context
  int number = 0;
  absl::Notification received;
};

TerminationSignal::TerminationSignal(boost::asio::io_context& context) : state_(std::make_shared<State>(context)) {
  state_->signals.async_wait([state = state_](const boost::system::error_code& error, int number) {
    if (error) return;
    boost::system::error_code ignored;
    state->signals.clear(ignored);
    state->number = number;
    state->received.Notify();
  });
}

TerminationSignal::~TerminationSignal() {
  boost::asio::post(state_->context, [state = state_] {
    boost::system::error_code ignored;
    state->signals.clear(ignored);
    state->signals.cancel(ignored);
  });
}

int TerminationSignal::Wait() {
  state_->received.WaitForNotification();
  return state_->number;
}

}  // namespace sluice

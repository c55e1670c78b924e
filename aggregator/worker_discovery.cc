#include "aggregator/worker_discovery.h"

#include <chrono>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/synchronization/notification.h"
#include "lib/cli/logging.h"
#include "lib/stripe/manifest.h"
#include "lib/telemetry/host_port.h"

namespace sluice {
namespace {

constexpr auto kLookEvery = std::chrono::seconds(2);

using Resolver = boost::asio::ip::tcp::resolver;

}  // namespace

// On the IO thread only, but for the notification.
class WorkerDiscovery::Loop : public std::enable_shared_from_this<Loop> {
 public:
  Loop(boost::asio::io_context& context, WorkerList list, OnWorkers on_workers)
      : list_(std::move(list)), on_workers_(std::move(on_workers)), resolver_(context), timer_(context) {}

  void LookUpNext() {
    if (stopped_) return;
    if (list_.fixed.size() + found_ >= kMaxStripeWorkers) return EndLook();
    const absl::StatusOr<HostPort> next = ParseHostPort(list_.open->Address(found_));
    if (!next.ok()) return EndLook();  // the config was checked
    resolver_.async_resolve(next->host, "", [self = shared_from_this()](const boost::system::error_code& error, auto) {
      if (!self->stopped_) self->OnAnswer(error);
    });
  }

  void Stop() {
    stopped_ = true;
    resolver_.cancel();
    timer_.cancel();
  }

  const absl::Notification& looked() const { return looked_; }

 private:
  void OnAnswer(const boost::system::error_code& error) {
    if (!error) {
      ++found_;
      return LookUpNext();
    }
    Warn(error);
    EndLook();
  }

  // A name that is not there ends every look; what keeps the name server from saying so is told once.
  void Warn(const boost::system::error_code& error) {
    const bool unknown = error == boost::asio::error::host_not_found || error == boost::asio::error::no_data;
    if (!unknown && !failing_) {
      Log(LogLevel::kWarning, "workers cannot be looked up; what is known stays",
          {{"worker", list_.open->Address(found_)}, {"reason", error.message()}});
    }
    failing_ = !unknown;
  }

  void EndLook() {
    const bool first = !looked_.HasBeenNotified();
    if (first || found_ > told_) {
      told_ = found_;
      on_workers_(list_.Addresses(found_));
    }
    if (first) looked_.Notify();
    timer_.expires_after(kLookEvery);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& failed) {
      if (!failed) self->LookUpNext();
    });
  }

  const WorkerList list_;
  const OnWorkers on_workers_;
  Resolver resolver_;
  boost::asio::steady_timer timer_;
  uint32_t found_ = 0;  // of the open range
  uint32_t told_ = 0;
  bool failing_ = false;
  bool stopped_ = false;
  absl::Notification looked_;
};

WorkerDiscovery::WorkerDiscovery(boost::asio::io_context& context, WorkerList list, OnWorkers on_workers)
    : context_(context), loop_(std::make_shared<Loop>(context, std::move(list), std::move(on_workers))) {
  boost::asio::post(context_, [loop = loop_] { loop->LookUpNext(); });
}

WorkerDiscovery::~WorkerDiscovery() {
  absl::Notification stopped;
  boost::asio::dispatch(context_, [this, &stopped] {
    loop_->Stop();
    stopped.Notify();
  });
  stopped.WaitForNotification();
}

bool WorkerDiscovery::AwaitFirstLook(absl::Duration timeout) const {
  return loop_->looked().WaitForNotificationWithTimeout(timeout);
}

}  // namespace sluice

#include "lib/cli/file_watch.h"

#include <csignal>
#include <optional>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "lib/cli/config_file.h"

namespace sluice {

// Runs on the thread of the context only, except its construction. There is one for each FileWatch.
class FileWatch::Loop : public std::enable_shared_from_this<Loop> {
 public:
  Loop(boost::asio::io_context& context, std::string path, absl::Duration period, std::function<void()> on_change)
      : path_(std::move(path)),
        period_(period),
        on_change_(std::move(on_change)),
        timer_(context),
        hangups_(context, SIGHUP) {}

  void Start() {
    AwaitHangup();
    if (period_ > absl::ZeroDuration()) AwaitTime();
  }

  void Stop() {
    stopped_ = true;
    timer_.cancel();
    boost::system::error_code ignored;
    hangups_.clear(ignored);
    hangups_.cancel(ignored);
  }

 private:
  void AwaitTime() {
    timer_.expires_after(absl::ToChronoNanoseconds(period_));
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error || self->stopped_) return;
      if (self->Differs()) self->on_change_();
      self->AwaitTime();
    });
  }

  void AwaitHangup() {
    hangups_.async_wait([self = shared_from_this()](const boost::system::error_code& error, int) {
      if (error || self->stopped_) return;
      self->Differs();
      self->on_change_();
      self->AwaitHangup();
    });
  }

  // Returns whether the file differs from the last check. All read failures count as equal.
  bool Differs() {
    absl::StatusOr<std::string> read = ReadConfigFile(path_);
    std::optional<std::string> text;
    if (read.ok()) text = *std::move(read);
    const bool differs = !looked_ || text != text_;
    looked_ = true;
    text_ = std::move(text);
    return differs;
  }

  const std::string path_;
  const absl::Duration period_;
  const std::function<void()> on_change_;
  boost::asio::steady_timer timer_;
  boost::asio::signal_set hangups_;
  std::optional<std::string> text_;
  bool looked_ = false;
  bool stopped_ = false;
};

FileWatch::FileWatch(boost::asio::io_context& context, std::string path, absl::Duration period,
                     std::function<void()> on_change)
    : context_(context), loop_(std::make_shared<Loop>(context, std::move(path), period, std::move(on_change))) {
  boost::asio::dispatch(context_, [loop = loop_] { loop->Start(); });
}

FileWatch::~FileWatch() {
  absl::Notification stopped;
  boost::asio::dispatch(context_, [this, &stopped] {
    loop_->Stop();
    stopped.Notify();
  });
  stopped.WaitForNotification();
}

}  // namespace sluice

#include "lib/rpc/connection_keeper.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/synchronization/notification.h"
#include "lib/rpc/clock.h"
#include "lib/rpc/link_driver.h"

namespace sluice {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(250);
constexpr auto kLookUpEvery = std::chrono::seconds(10);
constexpr int kAttemptsPerLook = 16;

// As one look after the other sees it.
struct KeptChannel {
  grpc::Channel* channel = nullptr;
  size_t row = 0;
  bool first = false;  // it says whether the worker is connected
  bool was_connected = false;
  bool connected = false;
  TimePoint look_up_at = TimePoint::max();
};

}  // namespace

// On the IO thread only, but for what is atomic.
class ConnectionKeeper::Loop : public std::enable_shared_from_this<Loop> {
 public:
  Loop(LinkDriver& driver, const WorkerChannels& channels) : driver_(driver), timer_(driver.io_context()) {
    for (size_t worker = 0; worker < channels.size(); ++worker) {
      const size_t row = channels.row(worker);
      kept_.push_back({.channel = &channels.first_channel(worker), .row = row, .first = true});
      if (grpc::Channel* second = channels.second_channel(worker)) kept_.push_back({.channel = second, .row = row});
    }
  }

  void Continue() {
    LookAtAll();
    timer_.expires_after(kLookEvery);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && !self->stopped_) self->Continue();
    });
  }

  void Stop() {
    stopped_ = true;
    timer_.cancel();
    for (const KeptChannel& kept : kept_) {
      if (kept.first && kept.connected) driver_.workers().OnForgotten(kept.row);
    }
  }

  void KeepAll() { keeps_all_ = true; }
  bool keeps_all() const { return keeps_all_; }

 private:
  // Each time from where the attempts of the last one were used up.
  void LookAtAll() {
    const TimePoint now = Now();
    int attempts = kAttemptsPerLook;
    size_t next = next_;
    for (size_t i = 0; i < kept_.size(); ++i) {
      const size_t index = (next_ + i) % kept_.size();
      if (!Look(kept_[index], now, attempts > 0)) continue;
      --attempts;
      next = index + 1;
    }
    next_ = next;
  }

  // True where it made an attempt.
  bool Look(KeptChannel& kept, TimePoint now, bool may_attempt) {
    const grpc_connectivity_state state = kept.channel->GetState(/*try_to_connect=*/false);
    SetConnected(kept, state == GRPC_CHANNEL_READY, now);
    if (state == GRPC_CHANNEL_IDLE) return may_attempt && Connect(kept);
    if (state != GRPC_CHANNEL_TRANSIENT_FAILURE) return false;
    if (kept.look_up_at == TimePoint::max()) kept.look_up_at = now;
    if (!may_attempt || now < kept.look_up_at) return false;
    kept.look_up_at = now + kLookUpEvery;
    grpc::experimental::ChannelResetConnectionBackoff(kept.channel);
    return true;
  }

  void SetConnected(KeptChannel& kept, bool connected, TimePoint now) {
    if (connected == kept.connected) return;
    kept.connected = connected;
    kept.was_connected = true;
    kept.look_up_at = TimePoint::max();
    if (!kept.first) return;
    if (!connected) return driver_.workers().OnLost(kept.row, now);
    const std::optional<absl::Duration> away = driver_.workers().OnConnected(kept.row, now);
    if (away.has_value()) driver_.metrics().ObserveReconnect(*away);
  }

  bool Connect(const KeptChannel& kept) {
    if (!kept.was_connected && !(keeps_all_ && kept.first)) return false;
    kept.channel->GetState(/*try_to_connect=*/true);
    return true;
  }

  LinkDriver& driver_;
  boost::asio::steady_timer timer_;
  std::vector<KeptChannel> kept_;
  size_t next_ = 0;
  std::atomic<bool> keeps_all_ = false;
  bool stopped_ = false;
};

ConnectionKeeper::ConnectionKeeper(LinkDriver& driver, const WorkerChannels& channels)
    : driver_(driver), loop_(std::make_shared<Loop>(driver, channels)) {
  boost::asio::post(driver_.io_context(), [loop = loop_] { loop->Continue(); });
}

ConnectionKeeper::~ConnectionKeeper() {
  absl::Notification stopped;
  boost::asio::post(driver_.io_context(), [this, &stopped] {
    loop_->Stop();
    stopped.Notify();
  });
  stopped.WaitForNotification();
}

void ConnectionKeeper::KeepAll() {
  loop_->KeepAll();
}

bool ConnectionKeeper::keeps_all() const {
  return loop_->keeps_all();
}

}  // namespace sluice

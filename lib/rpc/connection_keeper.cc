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
// By then gRPC asks for a name every five seconds or so; it has not begun to ask less and less often.
constexpr auto kTryAnewAfter = std::chrono::seconds(10);
constexpr int kAttemptsPerLook = 16;

// As one look after the other sees it.
struct KeptConnection {
  std::shared_ptr<WorkerConnection> connection;
  size_t worker = 0;
  bool first = false;  // it says whether the worker is connected
  bool by_name = false;
  bool was_connected = false;
  bool connected = false;
  std::shared_ptr<grpc::Channel> trial;  // may take the place of the channel; null: none is made
  TimePoint try_anew_at = TimePoint::max();
};

}  // namespace

// On the IO thread only, but for what is atomic.
class ConnectionKeeper::Loop : public std::enable_shared_from_this<Loop> {
 public:
  Loop(LinkDriver& driver, const WorkerChannels& channels)
      : driver_(driver), channels_(channels), timer_(driver.io_context()) {
    for (size_t worker = 0; worker < channels.size(); ++worker) {
      const bool by_name = channels.by_name(worker);
      kept_.push_back({.connection = channels.first(worker), .worker = worker, .first = true, .by_name = by_name});
      if (auto second = channels.second(worker)) {
        kept_.push_back({.connection = std::move(second), .worker = worker, .by_name = by_name});
      }
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
    for (KeptConnection& kept : kept_) {
      if (kept.first && kept.connected) driver_.workers().OnForgotten(channels_.row(kept.worker));
      kept.trial = nullptr;
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
  bool Look(KeptConnection& kept, TimePoint now, bool may_attempt) {
    const grpc_connectivity_state state = StateOf(kept);
    SetConnected(kept, state == GRPC_CHANNEL_READY, now);
    if (state == GRPC_CHANNEL_IDLE) return may_attempt && Connect(kept);
    if (state != GRPC_CHANNEL_TRANSIENT_FAILURE || !kept.by_name) return false;
    if (kept.try_anew_at == TimePoint::max()) kept.try_anew_at = now + kTryAnewAfter;
    if (!may_attempt || now < kept.try_anew_at) return false;
    kept.try_anew_at = now + 2 * kTryAnewAfter;
    kept.trial = channels_.MakeChannel(kept.worker, kept.first);
    kept.trial->GetState(/*try_to_connect=*/true);
    return true;
  }

  static grpc_connectivity_state StateOf(KeptConnection& kept) {
    const grpc_connectivity_state state = kept.connection->channel()->GetState(/*try_to_connect=*/false);
    if (state == GRPC_CHANNEL_READY || !kept.trial) return state;
    if (kept.trial->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_READY) return state;
    kept.connection->Replace(std::exchange(kept.trial, nullptr));
    return GRPC_CHANNEL_READY;
  }

  void SetConnected(KeptConnection& kept, bool connected, TimePoint now) {
    if (connected == kept.connected) return;
    kept.connected = connected;
    kept.was_connected = true;
    kept.trial = nullptr;
    kept.try_anew_at = TimePoint::max();
    if (!kept.first) return;
    const size_t row = channels_.row(kept.worker);
    if (!connected) return driver_.workers().OnLost(row, now);
    const std::optional<absl::Duration> away = driver_.workers().OnConnected(row, now);
    if (away.has_value()) driver_.metrics().ObserveReconnect(*away);
  }

  bool Connect(const KeptConnection& kept) {
    if (!kept.was_connected && !(keeps_all_ && kept.first)) return false;
    kept.connection->channel()->GetState(/*try_to_connect=*/true);
    return true;
  }

  LinkDriver& driver_;
  const WorkerChannels& channels_;
  boost::asio::steady_timer timer_;
  std::vector<KeptConnection> kept_;
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

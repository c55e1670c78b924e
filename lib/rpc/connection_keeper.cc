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

// As one look after the other sees them.
struct KeptConnection {
  std::shared_ptr<WorkerConnection> connection;  // null: the worker has no second one
  bool first = false;
  bool was_ready = false;
  bool ready = false;
  std::shared_ptr<grpc::Channel> trial;  // may take the place of the channel; null: none is made
  TimePoint try_anew_at = TimePoint::max();
};

struct KeptWorker {
  size_t worker = 0;
  bool by_name = false;
  KeptConnection first;
  KeptConnection second;
  bool connected = false;

  // By all connections that calls have used.
  bool all_ready() const { return first.ready && (second.ready || !second.was_ready); }
};

}  // namespace

// On the IO thread only, but for what is atomic.
class ConnectionKeeper::Loop : public std::enable_shared_from_this<Loop> {
 public:
  Loop(LinkDriver& driver, const WorkerChannels& channels)
      : driver_(driver), channels_(channels), timer_(driver.io_context()) {
    for (size_t worker = 0; worker < channels.size(); ++worker) {
      kept_.push_back({.worker = worker,
                       .by_name = channels.by_name(worker),
                       .first = {.connection = channels.first(worker), .first = true},
                       .second = {.connection = channels.second(worker)}});
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
    for (const KeptWorker& kept : kept_) {
      if (kept.connected) driver_.workers().OnForgotten(channels_.row(kept.worker));
    }
    kept_.clear();
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
  bool Look(KeptWorker& kept, TimePoint now, bool may_attempt) {
    const bool was_away = !kept.first.ready;
    bool attempted = Follow(kept, kept.first, now, may_attempt);
    // Where one is back, the other one need not wait.
    if (was_away && kept.first.ready && !kept.second.ready) kept.second.try_anew_at = now;
    if (kept.second.connection) attempted |= Follow(kept, kept.second, now, may_attempt);
    SetConnected(kept, kept.all_ready(), now);
    return attempted;
  }

  bool Follow(const KeptWorker& kept, KeptConnection& line, TimePoint now, bool may_attempt) {
    const grpc_connectivity_state state = StateOf(line);
    if (line.ready != (state == GRPC_CHANNEL_READY)) {
      line.ready = !line.ready;
      line.was_ready = true;
      line.trial = nullptr;
      line.try_anew_at = TimePoint::max();
    }
    if (state == GRPC_CHANNEL_IDLE) return may_attempt && Connect(line);
    if (state != GRPC_CHANNEL_TRANSIENT_FAILURE) return false;
    if (line.try_anew_at == TimePoint::max()) line.try_anew_at = now + kTryAnewAfter;
    if (!may_attempt || now < line.try_anew_at) return false;
    line.try_anew_at = now + 2 * kTryAnewAfter;
    TryAnew(kept, line);
    return true;
  }

  void TryAnew(const KeptWorker& kept, KeptConnection& line) {
    if (!kept.by_name) return grpc::experimental::ChannelResetConnectionBackoff(line.connection->channel().get());
    line.trial = channels_.MakeChannel(kept.worker, line.first);
    line.trial->GetState(/*try_to_connect=*/true);
  }

  static grpc_connectivity_state StateOf(KeptConnection& line) {
    const grpc_connectivity_state state = line.connection->channel()->GetState(/*try_to_connect=*/false);
    if (state == GRPC_CHANNEL_READY || !line.trial) return state;
    if (line.trial->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_READY) return state;
    line.connection->Replace(std::exchange(line.trial, nullptr));
    return GRPC_CHANNEL_READY;
  }

  bool Connect(const KeptConnection& line) {
    if (!line.was_ready && !(keeps_all_ && line.first)) return false;
    line.connection->channel()->GetState(/*try_to_connect=*/true);
    return true;
  }

  void SetConnected(KeptWorker& kept, bool connected, TimePoint now) {
    if (connected == kept.connected) return;
    kept.connected = connected;
    const size_t row = channels_.row(kept.worker);
    if (!connected) return driver_.workers().OnLost(row, now);
    const std::optional<absl::Duration> away = driver_.workers().OnConnected(row, now);
    if (away.has_value()) driver_.metrics().ObserveReconnect(*away);
  }

  LinkDriver& driver_;
  const WorkerChannels& channels_;
  boost::asio::steady_timer timer_;
  std::vector<KeptWorker> kept_;
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

#include "lib/net/happy_eyeballs_socket.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice {
namespace {

constexpr size_t kMaxReportedFailures = 4;

}  // namespace

// The socket of one address.
class HappyEyeballsSocket::Attempt final : public StreamSocketEvents {
 public:
  Attempt(HappyEyeballsSocket& owner, const WorkerAddress& address)
      : address_(address), owner_(owner), socket_(owner.executor_.Connect(address, owner.options_, *this)) {}

  const WorkerAddress& address() const { return address_; }
  StreamSocket& socket() { return *socket_; }

 private:
  bool won() const { return owner_.winner_ == this; }

  void OnTcpConnected() override {
    owner_.Choose(*this);
    owner_.events_.OnTcpConnected();
  }
  void OnConnected() override {
    if (!won()) owner_.Choose(*this);
    owner_.events_.OnConnected();
  }
  void OnBytes(absl::string_view bytes) override { owner_.events_.OnBytes(bytes); }
  void OnDrained() override { owner_.events_.OnDrained(); }
  void OnEnded() override { owner_.events_.OnEnded(); }
  void OnDisconnected(absl::Status why) override {
    if (won()) return owner_.events_.OnDisconnected(std::move(why));
    owner_.error_number_ = socket_->error_number();
    owner_.OnAttemptFailed(why);
  }

  const WorkerAddress& address_;
  HappyEyeballsSocket& owner_;
  const std::unique_ptr<StreamSocket> socket_;  // last, since it calls into the members above
};

HappyEyeballsSocket::HappyEyeballsSocket(Executor& executor, TimerQueue& timers, std::vector<WorkerAddress> addresses,
                                         const Executor::ConnectOptions& options, StreamSocketEvents& events)
    : executor_(executor),
      timers_(timers),
      addresses_(AlternateFamilies(std::move(addresses))),
      options_(options),
      events_(events),
      decision_(addresses_.size()) {
  assert(!addresses_.empty() && (options_.tls == nullptr || options_.tls_later));
  Apply(decision_.Begin(executor_.Now()));
}

HappyEyeballsSocket::~HappyEyeballsSocket() {
  timers_.Clear(timer_);
}

const WorkerAddress& HappyEyeballsSocket::address() const {
  return winner_->address();
}

void HappyEyeballsSocket::Apply(const HappyEyeballs::Actions& actions) {
  timers_.Clear(timer_);
  if (actions.attempt.has_value()) {
    attempts_.push_back(std::make_unique<Attempt>(*this, addresses_[*actions.attempt]));
  }
  if (actions.wake != TimePoint::max()) {
    timer_ = timers_.Set(actions.wake, [this] {
      timer_ = TimerQueue::Id();
      Apply(decision_.OnTimer(executor_.Now()));
    });
  }
  if (actions.failed) events_.OnDisconnected(Failure());
}

void HappyEyeballsSocket::Choose(Attempt& attempt) {
  timers_.Clear(timer_);
  winner_ = &attempt;
  std::erase_if(attempts_, [&attempt](const auto& other) { return other.get() != &attempt; });
}

void HappyEyeballsSocket::OnAttemptFailed(const absl::Status& why) {
  failures_.push_back(why);
  Apply(decision_.OnAttemptFailed(executor_.Now()));
}

// Returns the code of the last failure: an attempt that times out ends last.
absl::Status HappyEyeballsSocket::Failure() const {
  std::vector<absl::string_view> reasons;
  for (size_t i = 0; i < std::min(failures_.size(), kMaxReportedFailures); ++i) {
    reasons.push_back(failures_[i].message());
  }
  std::string text = absl::StrJoin(reasons, "; ");
  if (failures_.size() > reasons.size()) {
    absl::StrAppend(&text, "; and ", failures_.size() - reasons.size(), " more addresses failed");
  }
  return {failures_.back().code(), text};
}

void HappyEyeballsSocket::StartTls() {
  winner_->socket().StartTls();
}

void HappyEyeballsSocket::Write(std::string bytes) {
  winner_->socket().Write(std::move(bytes));
}

size_t HappyEyeballsSocket::unsent_bytes() const {
  return winner_->socket().unsent_bytes();
}

void HappyEyeballsSocket::EndWrites() {
  winner_->socket().EndWrites();
}

void HappyEyeballsSocket::Reset() {
  winner_->socket().Reset();
}

void HappyEyeballsSocket::SetReading(bool reading) {
  winner_->socket().SetReading(reading);
}

void HappyEyeballsSocket::SetReceiveWindow(int bytes) {
  winner_->socket().SetReceiveWindow(bytes);
}

void HappyEyeballsSocket::CheckPeer(std::function<void(const absl::Status& why)> on_revoked) {
  winner_->socket().CheckPeer(std::move(on_revoked));
}

int HappyEyeballsSocket::error_number() const {
  return winner_ != nullptr ? winner_->socket().error_number() : error_number_;
}

std::optional<TcpSocket> HappyEyeballsSocket::Tcp() const {
  return winner_->socket().Tcp();
}

}  // namespace sluice

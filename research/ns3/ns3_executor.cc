#include "research/ns3/ns3_executor.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "research/ns3/ns3_clock.h"
#include "tests/simulation/receive_window.h"

namespace sluice::testing {

// The client's end of a connection. One for each connection. Not thread-safe.
class Ns3Executor::Socket final : public std::enable_shared_from_this<Socket> {
 public:
  Socket(Ns3Executor& executor, StreamSocketEvents& events)
      : executor_(executor), id_(++executor.last_connection_), events_(&events) {}

  // The connection begins with a window of `window_bytes`; 0: as large as TcpOptions::receive_buffer_bytes.
  void Begin(const Listener& worker, int64_t window_bytes) {
    if (executor_.oracle_ != nullptr) executor_.oracle_->Opened(id_, worker.index);
    const Host& stack = executor_.network_.NextAggregatorStack(executor_.aggregator_);
    socket_ = executor_.network_.NewSocket(stack);
    if (window_bytes > 0) SetReceiveWindow(window_bytes);
    socket_->Bind();
    ns3::Address local;
    socket_->GetSockName(local);
    wire_ = executor_.wires_.Make(stack.address, ns3::InetSocketAddress::ConvertFrom(local).GetPort());
    using Event = ns3::Callback<void, ns3::Ptr<ns3::Socket>>;
    socket_->SetConnectCallback(Event([this](ns3::Ptr<ns3::Socket>) { Later(&Socket::TellConnected); }),
                                Event([this](ns3::Ptr<ns3::Socket>) { End("could not connect"); }));
    socket_->SetRecvCallback(Event([this](ns3::Ptr<ns3::Socket>) { ReadLater(); }));
    socket_->SetCloseCallbacks(Event([this](ns3::Ptr<ns3::Socket>) { End("the worker closed the connection"); }),
                               Event([this](ns3::Ptr<ns3::Socket>) { End("the connection was reset"); }));
    socket_->Connect(worker.address);
  }

  void Refuse() { End("nobody has this address"); }

  void Close() {
    events_ = nullptr;
    if (socket_ == nullptr) return;
    if (executor_.oracle_ != nullptr) executor_.oracle_->Closed(id_, executor_.Now());
    const ns3::Callback<void, ns3::Ptr<ns3::Socket>> none;
    socket_->SetConnectCallback(none, none);
    socket_->SetRecvCallback(none);
    socket_->SetCloseCallbacks(none, none);
    socket_->Close();
    socket_ = nullptr;
  }

  void Write(std::string bytes) {
    if (executor_.oracle_ != nullptr) executor_.oracle_->Sent(id_, bytes, executor_.Now());
    const std::chrono::nanoseconds after = executor_.Spend(executor_.thread_.write);
    if (after.count() == 0) return WriteTo(socket_, wire_->to_worker, bytes);
    Ns3After(after,
             [socket = socket_, wire = wire_, bytes = std::move(bytes)] { WriteTo(socket, wire->to_worker, bytes); });
  }

  std::optional<TcpSocket> Tcp() const {
    if (socket_ == nullptr) return std::nullopt;
    return TcpSocket{.inode = id_, .local = {}, .remote = {}, .info = socket_->Info()};
  }

  void SetReading(bool reading) {
    wants_bytes_ = reading;
    if (reading) ReadLater();
  }

  void SetReceiveWindow(int64_t bytes) {
    if (socket_ != nullptr) socket_->SetReceiveWindow(static_cast<uint32_t>(bytes));
  }

 private:
  void Later(void (Socket::*event)()) {
    executor_.Ready([self = shared_from_this(), event] {
      if (self->events_ != nullptr) (self.get()->*event)();
    });
  }
  void TellConnected() { events_->OnConnected(); }

  void ReadLater() {
    if (std::exchange(reading_, true)) return;
    Later(&Socket::Read);
  }
  void Read() {
    reading_ = false;
    if (!wants_bytes_) return;
    const std::string bytes = ReadFrom(socket_, wire_->to_client);
    if (bytes.empty()) return;
    executor_.Spend(executor_.thread_.read);
    if (executor_.oracle_ != nullptr) executor_.oracle_->Received(id_, bytes, executor_.Now());
    events_->OnBytes(bytes);
  }

  void End(const char* why) {
    if (std::exchange(over_, why) != nullptr) return;
    Later(&Socket::TellDisconnected);
  }
  void TellDisconnected() { std::exchange(events_, nullptr)->OnDisconnected(absl::UnavailableError(over_)); }

  Ns3Executor& executor_;
  const WireOracle::ConnectionId id_;
  StreamSocketEvents* events_;  // null once closed
  ns3::Ptr<HostSocket> socket_;
  std::shared_ptr<TcpWire> wire_;
  bool reading_ = false;     // Read is waiting for its turn
  bool wants_bytes_ = true;  // as set by SetReading
  const char* over_ = nullptr;
};

// The connection's owner of the socket. Destroying it closes the socket, which later events of ns-3 may still read.
class Ns3Executor::Handle final : public StreamSocket {
 public:
  explicit Handle(std::shared_ptr<Socket> socket) : socket_(std::move(socket)) {}
  ~Handle() override { socket_->Close(); }
  void Write(std::string bytes) override { socket_->Write(std::move(bytes)); }
  size_t unsent_bytes() const override { return 0; }  // the socket accepts all bytes at once
  void SetReading(bool reading) override { socket_->SetReading(reading); }
  void SetReceiveWindow(int bytes) override { socket_->SetReceiveWindow(bytes); }
  std::optional<TcpSocket> Tcp() const override { return socket_->Tcp(); }

 private:
  const std::shared_ptr<Socket> socket_;
};

Ns3Executor::~Ns3Executor() {
  waking_.Cancel();
  timer_.Cancel();
}

void Ns3Executor::AddWorker(const std::string& target, const ns3::InetSocketAddress& address) {
  workers_.emplace(target, Listener{address, workers_.size()});
}

TimePoint Ns3Executor::Now() const {
  return Ns3Now();
}

void Ns3Executor::Ready(std::function<void()> task) {
  ready_.push_back(std::move(task));
  if (waking_.IsRunning()) return;
  waking_ = Ns3At(idle_at_, [this] { RunReady(); });
}

void Ns3Executor::RunReady() {
  const std::vector<std::function<void()>> tasks = std::exchange(ready_, {});
  ++turns_;
  turn_cost_ = thread_.turn;
  for (const std::function<void()>& task : tasks) task();
  if (end_of_turn_) end_of_turn_();
  if (oracle_ != nullptr) oracle_->EndTurn(Now());
  idle_at_ = Now() + turn_cost_;
  busy_time_ += std::exchange(turn_cost_, std::chrono::nanoseconds(0));
  if (!ready_.empty() && !waking_.IsRunning()) waking_ = Ns3At(idle_at_, [this] { RunReady(); });
}

void Ns3Executor::SetTimer(TimePoint time, std::function<void()> task) {
  if (time == timer_time_) return;
  timer_.Cancel();
  timer_time_ = time;
  if (time == TimePoint::max()) return;
  std::chrono::nanoseconds tick = time - kNs3Start;
  if (const auto step = thread_.timer_step; step.count() > 0)
    tick = (tick + step - std::chrono::nanoseconds(1)) / step * step;
  const auto late = std::chrono::nanoseconds(
      static_cast<int64_t>(dice_.Fraction() * static_cast<double>(thread_.timers_late.count())));
  timer_ = Ns3At(kNs3Start + tick + late, [this, task = std::move(task)] {
    timer_time_ = TimePoint::max();
    Ready(task);
  });
}

std::shared_ptr<void> Ns3Executor::Resolve(const std::string& target, OnResolved on_resolved) {
  auto question = std::make_shared<OnResolved>(std::move(on_resolved));
  Ready([target, weak = std::weak_ptr<OnResolved>(question)] {
    const auto asked = weak.lock();
    if (asked == nullptr) return;
    const OnResolved answer = *asked;
    answer(std::vector<WorkerAddress>{{target}});
  });
  return question;
}

std::unique_ptr<StreamSocket> Ns3Executor::Connect(const WorkerAddress& address, const ConnectOptions& options,
                                                   StreamSocketEvents& events) {
  const auto socket = std::make_shared<Socket>(*this, events);
  const auto found = workers_.find(address.text);
  if (found == workers_.end()) {
    socket->Refuse();
  } else {
    socket->Begin(found->second, WindowOf(options.receive_buffer_bytes));
  }
  return std::make_unique<Handle>(socket);
}

}  // namespace sluice::testing

#include "tests/simulation/simulated_executor.h"

#include <algorithm>
#include <utility>

namespace sluice::testing {
namespace {

using HandshakeEnd = WireOracle::HandshakeEnd;

// The sizes that the schedule charges. No worker exceeds them.
constexpr int64_t kTcpHandshakeBytes = 192;
constexpr int64_t kTlsHandshakeBytes = 6 << 10;

}  // namespace

// The client's end of a connection.
class SimulatedExecutor::Socket final : public std::enable_shared_from_this<Socket> {
 public:
  Socket(SimulatedExecutor& executor, StreamSocketEvents& events, bool tls)
      : executor_(executor), source_(executor.NewSource()), events_(&events), tls_(tls) {}

  void Begin() { executor_.oracle_.HandshakeBegins(source_, kTcpHandshakeBytes, executor_.Now()); }
  // A null `listener` refuses the connection.
  void Ask(const Listener* listener) {
    const bool faulty = executor_.faulty_ && executor_.options_.connect_fault_one_in > 0;
    if (faulty && executor_.dice_.OneIn(executor_.options_.connect_fault_one_in)) {
      executor_.faults_.Count(Fault::kConnectHangs);
      return;
    }
    const bool refused =
        listener == nullptr || (faulty && executor_.dice_.OneIn(executor_.options_.connect_fault_one_in));
    if (refused) executor_.faults_.Count(Fault::kConnectRefused);
    executor_.events_.After(2 * executor_.options_.delay, [self = shared_from_this(), listener, refused] {
      self->executor_.Ready(self->source_, [self, listener, refused] {
        if (self->events_ == nullptr) return;
        self->executor_.oracle_.HandshakeEnds(self->source_, refused ? HandshakeEnd::kGivenUp : HandshakeEnd::kArrived,
                                              self->executor_.Now());
        if (refused) {
          return std::exchange(self->events_, nullptr)->OnDisconnected(absl::UnavailableError("connection refused"));
        }
        self->listener_ = listener;
        if (self->tls_) return self->events_->OnTcpConnected();
        self->Connect();
        self->events_->OnConnected();
      });
    });
  }

  // The handshake takes a round trip, and the worker's part of it crosses the port.
  void StartTls() {
    executor_.faults_.Count(Fault::kTlsHandshake);
    const TimePoint charged_until = executor_.oracle_.HandshakeBegins(source_, kTlsHandshakeBytes, executor_.Now());
    executor_.events_.After(executor_.options_.delay, [self = shared_from_this(), charged_until] {
      self->listener_->worker->Handshake(charged_until, [self] {
        self->executor_.Ready(self->source_, [self] {
          if (self->events_ == nullptr) return;
          self->executor_.oracle_.HandshakeEnds(self->source_, HandshakeEnd::kArrived, self->executor_.Now());
          self->Connect();
          self->events_->OnConnected();
        });
      });
    });
  }

  void Close() {
    events_ = nullptr;
    executor_.oracle_.HandshakeEnds(source_, HandshakeEnd::kGivenUp, executor_.Now());
    if (wire_.to_client == nullptr) return;
    executor_.oracle_.Closed(source_, executor_.Now());
    wire_.to_client->Cut();
    wire_.to_worker->End(absl::OkStatus());
  }

  void Write(std::string bytes) {
    if (wire_.to_worker == nullptr) return;
    executor_.oracle_.Sent(source_, bytes, executor_.Now());
    wire_.to_worker->Write(std::move(bytes));
  }

  void SetReading(bool reading) {
    wants_bytes_ = reading;
    if (reading) ReadLater();
  }
  void SetReceiveWindow(int) {}
  std::optional<TcpSocket> Tcp() const { return std::nullopt; }

 private:
  void Connect() {
    const std::weak_ptr<Socket> weak = weak_from_this();
    executor_.oracle_.Opened(source_, listener_->index);
    wire_ = listener_->worker->Accept(
        [&oracle = executor_.oracle_, id = source_](const std::vector<uint32_t>& streams) {
          return oracle.ChargedUntil(id, streams);
        },
        [weak](absl::string_view bytes) {
          const auto self = weak.lock();
          if (self == nullptr) return;
          self->arrived_.append(bytes.data(), bytes.size());
          self->ReadLater();
        },
        [weak](absl::Status why) {
          const auto self = weak.lock();
          if (self == nullptr) return;
          self->end_ = std::move(why);
          self->ReadLater();
        });
  }

  void ReadLater() {
    if (std::exchange(reading_, true)) return;
    executor_.Ready(source_, [self = shared_from_this()] { self->Read(); });
  }

  // Reads all bytes that have arrived at once, or only the first of them.
  void Read() {
    reading_ = false;
    if (events_ == nullptr || !wants_bytes_) return;
    if (!arrived_.empty()) {
      std::string bytes = std::exchange(arrived_, {});
      if (executor_.dice_.OneIn(32)) {
        const size_t read = 1 + executor_.dice_.Below(bytes.size());
        arrived_ = bytes.substr(read);
        bytes.resize(read);
        if (!arrived_.empty()) executor_.faults_.Count(Fault::kShortRead);
      }
      executor_.oracle_.Received(source_, bytes, executor_.Now());
      events_->OnBytes(bytes);
      if (!arrived_.empty()) return ReadLater();
    }
    if (!end_.has_value() || events_ == nullptr) return;
    executor_.oracle_.Closed(source_, executor_.Now());
    std::exchange(events_, nullptr)->OnDisconnected(*end_);
  }

  SimulatedExecutor& executor_;
  const Source source_;
  StreamSocketEvents* events_;  // null: closed
  const bool tls_;
  const Listener* listener_ = nullptr;  // null until TCP is connected
  SimulatedWorker::Wire wire_;
  std::string arrived_;  // bytes that were not read
  std::optional<absl::Status> end_;
  bool reading_ = false;     // Read is queued for its turn
  bool wants_bytes_ = true;  // SetReading
};

// The proxy's end of a connection to a byte worker. The schedule does not charge its handshake, and the oracle does not
// see it.
class SimulatedExecutor::ByteSocket final : public std::enable_shared_from_this<ByteSocket> {
 public:
  ByteSocket(SimulatedExecutor& executor, StreamSocketEvents& events, ByteWorker& worker, int64_t window_bytes)
      : executor_(executor),
        source_(executor.NewSource()),
        events_(&events),
        worker_(worker),
        window_bytes_(window_bytes) {}

  void Begin() {
    executor_.events_.After(2 * executor_.options_.delay, [self = shared_from_this()] {
      self->executor_.Ready(self->source_, [self] {
        if (self->events_ == nullptr) return;
        self->Connect();
        self->events_->OnConnected();
      });
    });
  }

  void Close() {
    events_ = nullptr;
    if (wire_.to_client == nullptr) return;
    wire_.to_client->Cut();
    wire_.to_worker->End(absl::OkStatus());
  }
  void StartTls() {}
  void Write(std::string bytes) {
    if (wire_.to_worker != nullptr) wire_.to_worker->Write(std::move(bytes));
  }
  void SetReading(bool reading) {
    wants_bytes_ = reading;
    if (reading) ReadLater();
  }
  void SetReceiveWindow(int bytes) {
    if (wire_.window != nullptr) wire_.window->Resize(bytes);
  }
  std::optional<TcpSocket> Tcp() const {
    if (wire_.window == nullptr) return std::nullopt;
    TcpSocket tcp;
    tcp.info.received_bytes = read_bytes_ + arrived_.size();
    tcp.info.receive_window_bytes = static_cast<uint32_t>(wire_.window->advertised_bytes());
    tcp.info.packet_payload_bytes = kPacketBytes;
    tcp.info.received_payload_bytes = kPacketBytes;
    return tcp;
  }

 private:
  void Connect() {
    const std::weak_ptr<ByteSocket> weak = weak_from_this();
    wire_ = worker_.Accept(
        window_bytes_,
        [weak](absl::string_view bytes) {
          const auto self = weak.lock();
          if (self == nullptr) return;
          self->arrived_.append(bytes.data(), bytes.size());
          self->wire_.window->OnArrived(bytes.size());
          self->ReadLater();
        },
        [weak](absl::Status why) {
          const auto self = weak.lock();
          if (self == nullptr) return;
          self->end_ = std::move(why);
          self->ReadLater();
        });
  }
  void ReadLater() {
    if (!wants_bytes_ || std::exchange(reading_, true)) return;
    executor_.Ready(source_, [self = shared_from_this()] { self->Read(); });
  }
  void Read() {
    reading_ = false;
    if (events_ == nullptr || !wants_bytes_) return;
    if (!arrived_.empty()) {
      const std::string bytes = std::exchange(arrived_, {});
      read_bytes_ += bytes.size();
      wire_.window->OnRead(bytes.size());
      events_->OnBytes(bytes);
    }
    if (!end_.has_value() || events_ == nullptr || !arrived_.empty() || !wants_bytes_) return;
    std::exchange(events_, nullptr)->OnDisconnected(*end_);
  }

  static constexpr uint32_t kPacketBytes = 1448;

  SimulatedExecutor& executor_;
  const Source source_;
  StreamSocketEvents* events_;  // null: closed
  ByteWorker& worker_;
  const int64_t window_bytes_;  // at first
  ByteWorker::Wire wire_;
  std::string arrived_;  // bytes that were not read
  uint64_t read_bytes_ = 0;
  std::optional<absl::Status> end_;
  bool reading_ = false;     // Read is queued for its turn
  bool wants_bytes_ = true;  // SetReading
};

namespace {

// The owner's handle of a socket. Its destructor closes the socket, which events of the world may still refer to.
template <class Socket>
class Handle final : public StreamSocket {
 public:
  explicit Handle(std::shared_ptr<Socket> socket) : socket_(std::move(socket)) {}
  ~Handle() override { socket_->Close(); }
  void StartTls() override { socket_->StartTls(); }
  void Write(std::string bytes) override { socket_->Write(std::move(bytes)); }
  size_t unsent_bytes() const override { return 0; }  // the kernel accepts all bytes at once
  void SetReading(bool reading) override { socket_->SetReading(reading); }
  void SetReceiveWindow(int bytes) override { socket_->SetReceiveWindow(bytes); }
  std::optional<TcpSocket> Tcp() const override { return socket_->Tcp(); }

 private:
  const std::shared_ptr<Socket> socket_;
};

}  // namespace

void SimulatedExecutor::AddWorker(const std::string& address, SimulatedWorker& worker) {
  const size_t index = listeners_.size();
  listeners_[address] = {&worker, index};
}

void SimulatedExecutor::Turn(const std::function<void()>& task) {
  task();
  if (end_of_turn_) end_of_turn_();
  oracle_.EndTurn(Now());
}

void SimulatedExecutor::Ready(Source source, std::function<void()> task) {
  ready_.push_back({source, std::move(task)});
  if (std::exchange(waking_, true)) return;
  auto late = std::chrono::microseconds(dice_.Between(0, 30));
  if (dice_.OneIn(options_.late_turn_one_in)) {
    late = std::chrono::microseconds(dice_.Between(1000, 5000));
    faults_.Count(Fault::kLateTurn);
  }
  events_.After(late, [this] { RunReady(); });
}

void SimulatedExecutor::RunReady() {
  waking_ = false;
  std::vector<ReadyTask> tasks = std::exchange(ready_, {});
  Shuffle(tasks);
  Turn([&tasks] {
    for (ReadyTask& ready : tasks) std::exchange(ready.task, nullptr)();
  });
}

// Changes the order of the sources. Tasks of one source keep their order.
void SimulatedExecutor::Shuffle(std::vector<ReadyTask>& tasks) {
  if (tasks.size() < 2) return;
  std::vector<ReadyTask> shuffled;
  shuffled.reserve(tasks.size());
  std::vector<size_t> turns(tasks.size());  // each source gets a turn, once for each of its tasks
  for (size_t i = 0; i < turns.size(); ++i) turns[i] = i;
  for (size_t i = turns.size() - 1; i > 0; --i) std::swap(turns[i], turns[dice_.Below(i + 1)]);
  bool reordered = false;
  for (const size_t turn : turns) {
    const Source source = tasks[turn].source;
    const auto next = std::find_if(tasks.begin(), tasks.end(),
                                   [source](const ReadyTask& task) { return task.source == source && task.task; });
    reordered = reordered || next - tasks.begin() != static_cast<std::ptrdiff_t>(shuffled.size());
    shuffled.push_back({source, std::exchange(next->task, nullptr)});
  }
  if (reordered) faults_.Count(Fault::kReordered);
  tasks = std::move(shuffled);
}

void SimulatedExecutor::SetTimer(TimePoint time, std::function<void()> task) {
  if (time == timer_time_) return;
  events_.Cancel(timer_);
  timer_time_ = time;
  if (time == TimePoint::max()) return;
  // Timers are late at times, by up to a millisecond.
  const auto late = std::chrono::microseconds(dice_.OneIn(10) ? dice_.Between(0, 1000) : 0);
  timer_ = events_.At(time + late, [this, task = std::move(task)] {
    timer_time_ = TimePoint::max();
    Ready(kTimer, task);
  });
}

std::shared_ptr<void> SimulatedExecutor::Resolve(const std::string& target, OnResolved on_resolved) {
  auto question = std::make_shared<OnResolved>(std::move(on_resolved));
  events_.After(std::chrono::microseconds(dice_.Between(1, 500)),
                [this, target, weak = std::weak_ptr<OnResolved>(question)] {
                  Ready(NewSource(), [target, weak] {
                    const auto asked = weak.lock();
                    if (asked == nullptr) return;
                    const OnResolved answer = *asked;
                    answer(std::vector<WorkerAddress>{{target}});
                  });
                });
  return question;
}

std::unique_ptr<StreamSocket> SimulatedExecutor::Connect(const WorkerAddress& address, const ConnectOptions& options,
                                                         StreamSocketEvents& events) {
  if (const auto found = byte_workers_.find(address.text); found != byte_workers_.end()) {
    const auto socket =
        std::make_shared<ByteSocket>(*this, events, *found->second, WindowOf(options.receive_buffer_bytes));
    socket->Begin();
    return std::make_unique<Handle<ByteSocket>>(socket);
  }
  const auto socket = std::make_shared<Socket>(*this, events, options.tls != nullptr);
  socket->Begin();
  if (dead_.contains(address.text)) {
    faults_.Count(Fault::kDeadAddress);
  } else {
    const auto found = listeners_.find(address.text);
    socket->Ask(found == listeners_.end() ? nullptr : &found->second);
  }
  return std::make_unique<Handle<Socket>>(socket);
}

}  // namespace sluice::testing

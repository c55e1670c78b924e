#include "tests/simulation/simulated_executor.h"

#include <utility>

namespace sluice::testing {

// The client's end of a stream.
class SimulatedExecutor::Socket final : public StreamSocket, public std::enable_shared_from_this<Socket> {
 public:
  explicit Socket(StreamSocketEvents& events) : events_(&events) {}

  void Begin(SimulatedExecutor& executor, SimulatedWorker* worker) {
    const std::weak_ptr<Socket> weak = weak_from_this();
    const bool faulty = executor.faulty_ && executor.connect_fault_one_in_ > 0;
    if (faulty && executor.dice_.OneIn(executor.connect_fault_one_in_)) {
      executor.faults_.Count(Fault::kConnectHangs);
      return;
    }
    const bool refused = worker == nullptr || (faulty && executor.dice_.OneIn(executor.connect_fault_one_in_));
    if (refused) executor.faults_.Count(Fault::kConnectRefused);
    executor.events_.After(2 * executor.delay_, [&executor, weak, worker, refused] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      executor.Turn([&] {
        if (refused) return self->events_->OnDisconnected(absl::UnavailableError("connection refused"));
        self->Connect(executor, *worker);
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

  void Write(std::string bytes) override {
    if (wire_.to_worker != nullptr) wire_.to_worker->Write(std::move(bytes));
  }
  std::optional<TcpSocket> Tcp() const override { return std::nullopt; }

 private:
  void Connect(SimulatedExecutor& executor, SimulatedWorker& worker) {
    const std::weak_ptr<Socket> weak = weak_from_this();
    wire_ = worker.Accept(
        [&executor, weak](absl::string_view bytes) {
          executor.Turn([&] {
            if (const auto self = weak.lock(); self != nullptr && self->events_ != nullptr)
              self->events_->OnBytes(bytes);
          });
        },
        [&executor, weak](absl::Status why) {
          executor.Turn([&] {
            const auto self = weak.lock();
            if (self == nullptr || self->events_ == nullptr) return;
            std::exchange(self->events_, nullptr)->OnDisconnected(std::move(why));
          });
        });
  }

  StreamSocketEvents* events_;  // null: closed
  SimulatedWorker::Wire wire_;
};

namespace {

// What the connection holds: dropping it closes the socket, which events of the world may still look at.
template <class Socket>
class Handle final : public StreamSocket {
 public:
  explicit Handle(std::shared_ptr<Socket> socket) : socket_(std::move(socket)) {}
  ~Handle() override { socket_->Close(); }
  void Write(std::string bytes) override { socket_->Write(std::move(bytes)); }
  std::optional<TcpSocket> Tcp() const override { return socket_->Tcp(); }

 private:
  const std::shared_ptr<Socket> socket_;
};

}  // namespace

std::shared_ptr<void> SimulatedExecutor::Resolve(const std::string& target, OnResolved on_resolved) {
  auto question = std::make_shared<OnResolved>(std::move(on_resolved));
  events_.After(std::chrono::microseconds(dice_.Between(1, 500)),
                [this, target, weak = std::weak_ptr<OnResolved>(question)] {
                  Turn([&] {
                    const auto asked = weak.lock();
                    if (asked == nullptr) return;
                    const OnResolved answer = *asked;
                    answer(std::vector<WorkerAddress>{{target}});
                  });
                });
  return question;
}

std::unique_ptr<StreamSocket> SimulatedExecutor::Connect(const WorkerAddress& address,
                                                         std::shared_ptr<const TlsContext>, const std::string&,
                                                         StreamSocketEvents& events) {
  const auto socket = std::make_shared<Socket>(events);
  const auto found = workers_.find(address.text);
  socket->Begin(*this, found == workers_.end() ? nullptr : found->second);
  return std::make_unique<Handle<Socket>>(socket);
}

}  // namespace sluice::testing

#include "tests/simulation/simulated_loopback.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace sluice::testing {
namespace {

constexpr std::chrono::microseconds kDelay(20);
constexpr size_t kKernelBytes = 64 << 10;  // bound of the proxy's send buffer

}  // namespace

class SimulatedLoopback::ProxyEnd final : public StreamSocket {
 public:
  explicit ProxyEnd(std::shared_ptr<SimulatedLoopback> loopback) : loopback_(std::move(loopback)) {}
  ~ProxyEnd() override { loopback_->EndOfProxy(); }
  void Write(std::string bytes) override { loopback_->FromProxy(bytes); }
  size_t unsent_bytes() const override { return std::max(loopback_->to_client_.size(), kKernelBytes) - kKernelBytes; }
  void SetReading(bool reading) override {
    loopback_->proxy_reads_ = reading;
    if (reading) loopback_->Deliver();
  }
  std::optional<TcpSocket> Tcp() const override { return std::nullopt; }

 private:
  const std::shared_ptr<SimulatedLoopback> loopback_;
};

SimulatedLoopback::SimulatedLoopback(EventQueue& events, SimulatedExecutor& executor, Client client)
    : events_(events), executor_(executor), source_(executor.NewSource()), client_(std::move(client)) {}

AcceptedSocket SimulatedLoopback::Accept() {
  return [self = shared_from_this()](StreamSocketEvents& proxy) {
    self->proxy_ = &proxy;
    self->events_.After(kDelay, [self] {
      if (!self->closed_) self->client_.on_connected();
    });
    return std::make_unique<ProxyEnd>(self);
  };
}

void SimulatedLoopback::Write(absl::string_view bytes) {
  to_proxy_.append(bytes.data(), bytes.size());
  events_.After(kDelay, [self = shared_from_this()] { self->Deliver(); });
}

void SimulatedLoopback::SetReading(bool reading) {
  client_reads_ = reading;
  if (reading && !to_client_.empty()) ReadLater();
}

void SimulatedLoopback::Close() {
  if (std::exchange(closed_, true)) return;
  Deliver();
}

// Called in a turn of the proxy's thread.
void SimulatedLoopback::FromProxy(const std::string& bytes) {
  if (closed_) return;
  to_client_ += bytes;
  ReadLater();
}

void SimulatedLoopback::ReadLater() {
  if (!client_reads_ || std::exchange(read_queued_, true)) return;
  events_.After(kDelay, [self = shared_from_this()] { self->Read(); });
}

void SimulatedLoopback::Read() {
  read_queued_ = false;
  if (closed_ || !client_reads_) return;
  const std::string bytes = std::exchange(to_client_, {});
  if (bytes.size() > kKernelBytes) {
    executor_.Ready(source_, [self = shared_from_this()] {
      if (self->proxy_ != nullptr) self->proxy_->OnDrained();
    });
  }
  client_.on_bytes(bytes);
}

// Delivers bytes to the proxy's thread, if it reads.
void SimulatedLoopback::Deliver() {
  if (proxy_ == nullptr || !proxy_reads_ || (to_proxy_.empty() && !closed_)) return;
  if (std::exchange(delivery_queued_, true)) return;
  executor_.Ready(source_, [self = shared_from_this()] {
    self->delivery_queued_ = false;
    if (self->proxy_ == nullptr || !self->proxy_reads_) return;
    const std::string bytes = std::exchange(self->to_proxy_, {});
    if (!bytes.empty()) self->proxy_->OnBytes(bytes);
    // A proxy that does not read receives the end once it reads again.
    if (self->closed_ && self->proxy_ != nullptr && self->proxy_reads_) {
      std::exchange(self->proxy_, nullptr)->OnDisconnected(absl::OkStatus());
    }
  });
}

// Called in a turn of the proxy's thread, or from the destructor of the proxy.
void SimulatedLoopback::EndOfProxy() {
  proxy_ = nullptr;
  events_.After(kDelay, [self = shared_from_this()] {
    self->Read();  // bytes that were written before
    if (!self->closed_) self->client_.on_closed();
  });
}

}  // namespace sluice::testing

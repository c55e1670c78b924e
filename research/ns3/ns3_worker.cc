#include "research/ns3/ns3_worker.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "research/ns3/ns3_clock.h"
#include "tests/simulation/byte_worker.h"
#include "tests/simulation/worker_session.h"

namespace sluice::testing {
namespace {

// Enough for all queries that may be open at once.
constexpr uint32_t kMaxConcurrentStreams = 1u << 16;

}  // namespace

// One connection to the aggregator.
class Ns3Worker::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Ns3Worker& worker, ns3::Ptr<ns3::Socket> socket, std::shared_ptr<TcpWire> wire)
      : worker_(worker), socket_(std::move(socket)), wire_(std::move(wire)) {}
  virtual ~Connection() { Release(); }

  virtual void Start() {
    using Event = ns3::Callback<void, ns3::Ptr<ns3::Socket>>;
    socket_->SetRecvCallback(Event([this](ns3::Ptr<ns3::Socket>) {
      const std::string bytes = ReadFrom(socket_, wire_->to_worker);
      if (!bytes.empty()) Receive(bytes);
    }));
    socket_->SetCloseCallbacks(Event([this](ns3::Ptr<ns3::Socket>) { Lost(); }),
                               Event([this](ns3::Ptr<ns3::Socket>) { Lost(); }));
  }

 protected:
  virtual void Receive(const std::string& bytes) = 0;
  virtual void Lost() {}

  // Runs `task` after the time that a response takes: at once if workers do not think. `later` is its argument.
  void Think(std::function<void(bool later)> task) {
    const auto think = std::chrono::nanoseconds(static_cast<int64_t>(worker_.options_.think.Draw(worker_.dice_) * 1e9));
    if (think.count() == 0) return task(/*later=*/false);
    Ns3After(think, [weak = weak_from_this(), task = std::move(task)] {
      const auto self = weak.lock();
      if (self != nullptr) task(/*later=*/true);
    });
  }

  // The host may be late. Later writes are then at least as late.
  void Send(std::string bytes) {
    const auto jitter = static_cast<double>(worker_.options_.jitter.count());
    if (jitter == 0) return WriteTo(socket_, wire_->to_client, bytes);
    const auto late = std::chrono::nanoseconds(static_cast<int64_t>(worker_.dice_.Fraction() * jitter));
    writes_at_ = std::max(writes_at_, Ns3Now() + late);
    Ns3At(writes_at_, [weak = weak_from_this(), bytes = std::move(bytes)] {
      const auto self = weak.lock();
      if (self != nullptr) WriteTo(self->socket_, self->wire_->to_client, bytes);
    });
  }

  void Release() {
    const ns3::Callback<void, ns3::Ptr<ns3::Socket>> none;
    socket_->SetRecvCallback(none);
    socket_->SetCloseCallbacks(none, none);
    socket_->Close();
  }

 private:
  Ns3Worker& worker_;
  const ns3::Ptr<ns3::Socket> socket_;
  const std::shared_ptr<TcpWire> wire_;
  TimePoint writes_at_;
};

class Ns3Worker::GrpcConnection final : public Connection, private WorkerSession {
 public:
  using Connection::Connection;

  void Start() override {
    Connection::Start();
    if (!Begin(kMaxConcurrentStreams).ok()) Lose();
  }

 private:
  void Receive(const std::string& bytes) override { OnBytes(bytes); }
  void Lost() override { OnClientGone(); }

  void Serve(int32_t stream, const Question& question, absl::Duration /*timeout*/) override {
    Think([this, stream, size = question.bytes](bool later) {
      if (session() == nullptr) return;
      Answer(stream, size);
      if (later) Flush();  // otherwise the handler of the request flushes
    });
  }
  void OnGone(int32_t) override {}
  void Write(std::string bytes) override { Send(std::move(bytes)); }
  void Lose() override {
    Release();
    OnClientGone();
  }
};

class Ns3Worker::ByteConnection final : public Connection {
 public:
  using Connection::Connection;

 private:
  void Receive(const std::string& bytes) override {
    received_ += bytes;
    const absl::StatusOr<std::vector<ByteRequest>> requests = TakeRequests(received_);
    if (!requests.ok()) return Release();
    for (const ByteRequest& request : *requests) {
      Think([this, size = request.bytes](bool) { Send(std::string(size, '\0')); });
    }
  }

  std::string received_;  // the received part of the next request
};

Ns3Worker::Ns3Worker(Network& network, const Host& host, uint16_t port, TcpWires& wires, Dice& dice,
                     const Options& options)
    : wires_(wires), dice_(dice), options_(options), address_(host.address, port), listener_(network.NewSocket(host)) {
  listener_->Bind(address_);
  listener_->Listen();
  listener_->SetAcceptCallback(
      ns3::MakeNullCallback<bool, ns3::Ptr<ns3::Socket>, const ns3::Address&>(),
      ns3::Callback<void, ns3::Ptr<ns3::Socket>, const ns3::Address&>(
          [this](ns3::Ptr<ns3::Socket> socket, const ns3::Address& client) { Accept(socket, client); }));
}

Ns3Worker::~Ns3Worker() {
  listener_->SetAcceptCallback(ns3::MakeNullCallback<bool, ns3::Ptr<ns3::Socket>, const ns3::Address&>(),
                               ns3::MakeNullCallback<void, ns3::Ptr<ns3::Socket>, const ns3::Address&>());
  listener_->Close();
}

void Ns3Worker::Accept(const ns3::Ptr<ns3::Socket>& socket, const ns3::Address& client) {
  auto wire = wires_.Take(client);
  if (wire == nullptr) return;
  if (options_.speaks_bytes) {
    connections_.push_back(std::make_shared<ByteConnection>(*this, socket, std::move(wire)));
  } else {
    connections_.push_back(std::make_shared<GrpcConnection>(*this, socket, std::move(wire)));
  }
  connections_.back()->Start();
}

}  // namespace sluice::testing

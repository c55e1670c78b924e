#include "research/ns3/ns3_worker.h"

#include <algorithm>
#include <utility>

#include "research/ns3/ns3_clock.h"
#include "tests/simulation/worker_session.h"

namespace sluice::testing {
namespace {

// Enough for all queries that may be open at once.
constexpr uint32_t kMaxConcurrentStreams = 1u << 16;

}  // namespace

// One connection to the aggregator.
class Ns3Worker::Connection final : public WorkerSession, public std::enable_shared_from_this<Connection> {
 public:
  Connection(Ns3Worker& worker, ns3::Ptr<ns3::Socket> socket, std::shared_ptr<TcpWire> wire)
      : worker_(worker), socket_(std::move(socket)), wire_(std::move(wire)) {}
  ~Connection() override { Release(); }

  void Start() {
    using Event = ns3::Callback<void, ns3::Ptr<ns3::Socket>>;
    socket_->SetRecvCallback(Event([this](ns3::Ptr<ns3::Socket>) {
      const std::string bytes = ReadFrom(socket_, wire_->to_worker);
      if (!bytes.empty()) OnBytes(bytes);
    }));
    socket_->SetCloseCallbacks(Event([this](ns3::Ptr<ns3::Socket>) { OnClientGone(); }),
                               Event([this](ns3::Ptr<ns3::Socket>) { OnClientGone(); }));
    if (!Begin(kMaxConcurrentStreams).ok()) Lose();
  }

 private:
  void Serve(int32_t stream, const Question& question, absl::Duration /*timeout*/) override {
    const auto think = std::chrono::nanoseconds(static_cast<int64_t>(worker_.options_.think.Draw(worker_.dice_) * 1e9));
    if (think.count() == 0) return Answer(stream, question.bytes);  // the handler of the request flushes
    Ns3After(think, [weak = weak_from_this(), stream, size = question.bytes] {
      const auto self = weak.lock();
      if (self == nullptr || self->session() == nullptr) return;
      self->Answer(stream, size);
      self->Flush();
    });
  }
  void OnGone(int32_t) override {}

  // The host may be late. Later writes are then at least as late.
  void Write(std::string bytes) override {
    const auto jitter = static_cast<double>(worker_.options_.jitter.count());
    if (jitter == 0) return WriteTo(socket_, wire_->to_client, bytes);
    const auto late = std::chrono::nanoseconds(static_cast<int64_t>(worker_.dice_.Fraction() * jitter));
    writes_at_ = std::max(writes_at_, Ns3Now() + late);
    Ns3At(writes_at_, [weak = weak_from_this(), bytes = std::move(bytes)] {
      const auto self = weak.lock();
      if (self != nullptr) WriteTo(self->socket_, self->wire_->to_client, bytes);
    });
  }

  void Lose() override {
    Release();
    OnClientGone();
  }

  void Release() {
    const ns3::Callback<void, ns3::Ptr<ns3::Socket>> none;
    socket_->SetRecvCallback(none);
    socket_->SetCloseCallbacks(none, none);
    socket_->Close();
  }

  Ns3Worker& worker_;
  const ns3::Ptr<ns3::Socket> socket_;
  const std::shared_ptr<TcpWire> wire_;
  TimePoint writes_at_;
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
  connections_.push_back(std::make_shared<Connection>(*this, socket, std::move(wire)));
  connections_.back()->Start();
}

}  // namespace sluice::testing

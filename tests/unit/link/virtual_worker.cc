#include "tests/unit/link/virtual_worker.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace sluice::testing {

// The link's end of a connection. Destroying it closes the connection.
class VirtualWorker::Connection::ClientEnd final : public StreamSocket {
 public:
  ClientEnd(VirtualExecutor& executor, Connection& connection) : executor_(executor), connection_(connection) {}
  ~ClientEnd() override {
    connection_.client_ = nullptr;
    executor_.After(VirtualExecutor::kDelay, [&connection = connection_] { connection.Lose(); });
  }
  void Write(std::string bytes) override {
    connection_.OnClientWrites();
    executor_.After(VirtualExecutor::kDelay,
                    [&connection = connection_, bytes = std::move(bytes)] { connection.OnBytes(bytes); });
  }
  size_t unsent_bytes() const override { return 0; }
  void SetReading(bool) override {}
  std::optional<TcpSocket> Tcp() const override { return connection_.Tcp(); }

 private:
  VirtualExecutor& executor_;
  Connection& connection_;  // lives as long as its worker
};

VirtualWorker::Call::Call(Connection& connection, int32_t stream)
    : ServerCall(connection.session(), stream), connection_(connection) {}

void VirtualWorker::Call::SendHeaders(const HeaderList& headers, bool end_stream) {
  connection_.session().SendHeaders(stream(), headers, end_stream);
}

void VirtualWorker::Call::OnRequest() {
  whole_ = true;
  if (connection_.worker_.handler_) connection_.worker_.handler_(*this);
}

void VirtualWorker::Call::OnGone(StreamEnd end) {
  end_ = end;
  if (end.kind == StreamEnd::Kind::kReset) ++connection_.worker_.resets_;
}

VirtualWorker::Connection::Connection(VirtualWorker& worker, StreamSocketEvents& client)
    : worker_(worker), client_(&client) {}

StreamEvents* VirtualWorker::Connection::OnStream(int32_t stream) {
  ++requests_;
  worker_.calls_.push_back(std::make_unique<Call>(*this, stream));
  return worker_.calls_.back().get();
}

void VirtualWorker::Connection::Deliver(std::function<void(StreamSocketEvents&)> event) {
  worker_.executor_.After(VirtualExecutor::kDelay, [this, event = std::move(event)] {
    if (client_ != nullptr) event(*client_);
  });
}

void VirtualWorker::Connection::Flush(const std::string& frames) {
  if (worker_.pause_ != Pause::kNone) return;
  std::string out;
  session_->Output(out);
  out += frames;
  if (out.empty()) return;
  if (worker_.options_.on_sent) worker_.options_.on_sent(*this, out);
  Deliver([this, out](StreamSocketEvents& client) {
    tcp_.info.received_bytes += out.size();
    tcp_.info.unacknowledged_packets = 0;
    received_at_ = worker_.executor_.Now();
    client.OnBytes(out);
  });
}

void VirtualWorker::Connection::OnClientWrites() {
  sent_at_ = worker_.executor_.Now();
  if (worker_.pause_ == Pause::kHost) tcp_.info.unacknowledged_packets = 1;
}

TcpSocket VirtualWorker::Connection::Tcp() const {
  worker_.executor_.CountTcpInfo();
  const TimePoint now = worker_.executor_.Now();
  TcpSocket socket = tcp_;
  socket.info.since_data_sent = absl::FromChrono(now - sent_at_);
  socket.info.since_data_received = absl::FromChrono(now - received_at_);
  return socket;
}

void VirtualWorker::Connection::Break() {
  Deliver([this](StreamSocketEvents&) { BreakHere(); });
}

void VirtualWorker::Connection::BreakHere() {
  std::exchange(client_, nullptr)->OnDisconnected(absl::UnavailableError("connection reset"));
}

void VirtualWorker::Connection::OnBytes(absl::string_view bytes) {
  if (worker_.options_.on_received) worker_.options_.on_received(*this, bytes);
  const auto received = session_->Receive(bytes);
  EXPECT_TRUE(received.ok()) << received;
  Flush();
}

void VirtualWorker::Connection::Lose() {
  session_->Lose();
}

VirtualWorker::VirtualWorker(VirtualExecutor& executor, const std::string& address, Handler handler, Options options)
    : executor_(executor), address_(address), handler_(std::move(handler)), options_(std::move(options)) {
  executor_.Listen(address_, *this);
}

size_t VirtualWorker::open_connections() const {
  return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(),
                                           [](const auto& connection) { return connection->open(); }));
}

void VirtualWorker::SetPause(Pause pause) {
  pause_ = pause;
  for (const auto& connection : connections_) {
    // Its acknowledgement would arrive with the response.
    if (pause == Pause::kHost) connection->tcp_.info.unacknowledged_packets = 1;
    connection->Flush();
  }
}

std::unique_ptr<StreamSocket> VirtualWorker::Accept(StreamSocketEvents& events) {
  connections_.push_back(std::make_unique<Connection>(*this, events));
  Connection& connection = *connections_.back();
  connection.tcp_.inode = executor_.NextInode();
  connection.session_ = *Http2Session::Create({.side = Http2Session::Side::kServer,
                                               .max_concurrent_streams = options_.max_concurrent_streams,
                                               .max_unsent_bytes_per_stream = 64u << 20},
                                              connection);
  connection.Deliver([this, &connection](StreamSocketEvents& client) {
    client.OnConnected();
    if (options_.on_accept) options_.on_accept(connection);
    connection.Flush();
  });
  return std::make_unique<Connection::ClientEnd>(executor_, connection);
}

}  // namespace sluice::testing

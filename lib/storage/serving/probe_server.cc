#include "lib/storage/serving/probe_server.h"

#include <optional>
#include <string>
#include <utility>  // Boost 1.74 misses it in C++20
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/net/clock.h"
#include "lib/storage/serving/grpc_status.h"
#include "lib/tcp/peer_name.h"

namespace sluice {
namespace {

std::string ToText(const TcpEndpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return endpoint.address().is_v6() ? absl::StrCat("[", host, "]:", endpoint.port())
                                    : absl::StrCat(host, ":", endpoint.port());
}

v1::TcpConnection ToMessage(const TcpSocket& socket) {
  v1::TcpConnection message;
  message.set_local(ToText(socket.local));
  message.set_remote(ToText(socket.remote));
  message.set_retransmitted_packets(socket.info.retransmitted_packets);
  message.set_duplicate_packets(socket.info.duplicate_packets);
  if (socket.info.rtos.has_value()) message.set_timeouts(*socket.info.rtos);
  message.set_congestion_window_packets(socket.info.congestion_window_packets);
  message.set_smoothed_rtt_us(static_cast<uint32_t>(absl::ToInt64Microseconds(socket.info.smoothed_rtt)));
  return message;
}

}  // namespace

// One Probe. Owns itself from construction to OnDone.
class ProbeServer::ProbeCall final : public grpc::ServerUnaryReactor {
 public:
  ProbeCall(ProbeServer& server, grpc::CallbackServerContext& context, const v1::ProbeRequest& request,
            v1::ProbeResponse& response)
      : answer_(server.answers_, ClientName(context), [&context] { context.TryCancel(); }) {
    const absl::Status status = Answer(request, response);
    answer_.OnOffered(Now());
    Finish(ToGrpc(status));
  }

  void OnDone() override {
    answer_.OnOver();
    delete this;
  }

 private:
  absl::Status Answer(const v1::ProbeRequest& request, v1::ProbeResponse& response) {
    if (request.payload_bytes() > kMaxProbePayloadBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("payload_bytes is ", request.payload_bytes(), "; it must be at most ", kMaxProbePayloadBytes));
    }
    absl::Status status = answer_.Take(request.payload_bytes(), Now());
    if (status.ok()) response.mutable_payload()->resize(request.payload_bytes());
    return status;
  }

  AnswerMemory::Share answer_;
};

// One GetTcpCounters. Owns itself from construction to OnDone.
class ProbeServer::CountersCall final : public grpc::ServerUnaryReactor {
 public:
  CountersCall(ProbeServer& server, const std::string& peer, v1::GetTcpCountersResponse& response)
      : server_(server), response_(response) {
    const int before = server_.counter_calls_.fetch_add(1);
    const std::optional<TcpEndpoint> endpoint = ParsePeerName(peer);
    if (before >= server_.options_.max_counter_calls) {
      Finish(ToGrpc(absl::ResourceExhaustedError(
          absl::StrCat(before, " calls wait for counters; at most ", server_.options_.max_counter_calls, " may"))));
    } else if (!endpoint.has_value()) {
      Finish(ToGrpc(absl::FailedPreconditionError(absl::StrCat(peer, " is no TCP connection"))));
    } else {
      boost::asio::post(server_.context_, [this, endpoint = *endpoint] { Finish(ToGrpc(Count(endpoint))); });
    }
  }

  void OnDone() override {
    server_.counter_calls_.fetch_sub(1);
    delete this;
  }

 private:
  absl::Status Count(const TcpEndpoint& peer) {
    const auto sockets = server_.ConnectionsFrom(peer);
    if (!sockets.ok()) return sockets.status();
    for (const TcpSocket& socket : *sockets) *response_.add_connections() = ToMessage(socket);
    return absl::OkStatus();
  }

  ProbeServer& server_;
  v1::GetTcpCountersResponse& response_;
};

absl::StatusOr<std::vector<TcpSocket>> ProbeServer::ConnectionsFrom(const TcpEndpoint& peer) {
  if (!socket_diag_.has_value()) {
    absl::StatusOr<SocketDiag> opened = SocketDiag::Open();
    if (!opened.ok()) return opened.status();
    socket_diag_.emplace(*std::move(opened));
  }
  absl::StatusOr<std::vector<TcpSocket>> sockets = socket_diag_->OwnConnections();
  if (!sockets.ok()) return sockets.status();
  std::erase_if(*sockets, [&peer](const TcpSocket& socket) { return socket.remote != peer; });
  // The call arrived on one of these connections, unless that has closed since.
  if (sockets->empty())
    return absl::UnavailableError(absl::StrCat("the kernel shows no connection from ", ToText(peer)));
  return sockets;
}

grpc::ServerUnaryReactor* ProbeServer::Probe(grpc::CallbackServerContext* context, const v1::ProbeRequest* request,
                                             v1::ProbeResponse* response) {
  if (absl::Status allowed = CheckAccess(options_.access.get(), *context, "ProbeService/Probe", std::nullopt);
      !allowed.ok()) {
    return new RefusedCall(allowed);
  }
  return new ProbeCall(*this, *context, *request, *response);
}

grpc::ServerUnaryReactor* ProbeServer::GetTcpCounters(grpc::CallbackServerContext* context,
                                                      const v1::GetTcpCountersRequest*,
                                                      v1::GetTcpCountersResponse* response) {
  if (absl::Status allowed = CheckAccess(options_.access.get(), *context, "ProbeService/GetTcpCounters", std::nullopt);
      !allowed.ok()) {
    return new RefusedCall(allowed);
  }
  return new CountersCall(*this, context->peer(), *response);
}

}  // namespace sluice

#include "lib/rpc/worker_channels.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include <boost/asio/ip/address.hpp>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/rpc/dead_peer.h"
#include "lib/rpc/socket_setup.h"
#include "lib/telemetry/host_port.h"

namespace sluice {
namespace {

constexpr size_t kMaxChannels = 65536;  // as many as a file may be striped over
constexpr size_t kHandshakesAtOnce = 16;
constexpr absl::Duration kLongest = absl::Hours(24 * 365);  // the end of the wall clock's time is not much further

absl::Status ValidateAddress(absl::string_view address) {
  for (absl::string_view scheme : {"unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:"}) {
    if (address.substr(0, scheme.size()) == scheme && address.size() > scheme.size()) return absl::OkStatus();
  }
  const absl::StatusOr<HostPort> parsed = ParseHostPort(std::string_view(address.data(), address.size()));
  if (!parsed.ok() || parsed->host.empty() || parsed->port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker address \"", address, "\" is not host:port with a port between 1 and 65535"));
  }
  return absl::OkStatus();
}

// By its look; a name that resolves to loopback is taken for a remote one, which costs it some speed.
bool IsLoopback(absl::string_view address) {
  for (absl::string_view prefix : {"127.", "localhost:", "[::1]:", "ipv4:127.", "ipv6:[::1]:", "unix:", "unix-abs"}) {
    if (absl::StartsWith(address, prefix)) return true;
  }
  return false;
}

grpc::ChannelArguments WorkerArguments(const WorkerChannels::Options& options, bool held) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(options.max_response_bytes);
  // Retries go through the schedule; one that gRPC makes by itself would add its answer to what is in flight.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Each probe of the bandwidth-delay product is one more packet through the bottleneck, and would open the window. It
  // is set instead: to the least that gRPC takes, the five bytes before a message, so that an answer waits at its
  // worker; or to the largest answer that is ever asked for.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, held ? 5 : 4 << 20);
  // A worker that is back is used again within seconds, not after gRPC's two minutes, and at its new address when the
  // name server knows it. A thousand workers that are away at once cost some hundred packets and look-ups a second.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 5000);
  // By default gRPC gives up a connection that nobody has used for half an hour. These are persistent: a thousand
  // handshakes at once are a storm.
  arguments.SetInt(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, std::numeric_limits<int>::max());
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

// Until the channel is ready or has failed once.
void AwaitHandshake(grpc::Channel& channel, std::chrono::system_clock::time_point deadline) {
  while (true) {
    const grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY || state == GRPC_CHANNEL_TRANSIENT_FAILURE) return;
    if (!channel.WaitForStateChange(state, deadline)) return;
  }
}

}  // namespace

absl::Status WorkerChannels::Validate(const std::vector<std::string>& addresses) {
  if (addresses.empty() || addresses.size() > kMaxChannels) {
    return absl::InvalidArgumentError(
        absl::StrCat("workers lists ", addresses.size(), " addresses; it must list 1 to ", kMaxChannels));
  }
  for (const std::string& address : addresses) {
    if (absl::Status status = ValidateAddress(address); !status.ok()) return status;
  }
  return absl::OkStatus();
}

WorkerChannels::WorkerChannels(const std::vector<std::string>& addresses, WorkerTable& table, const Options& options,
                               const WorkerChannels* before)
    : table_(table), options_(options) {
  absl::flat_hash_map<absl::string_view, const Worker*> known;
  if (before != nullptr && before->options_ == options_) {
    for (const Worker& worker : before->workers_) known[worker.address] = &worker;
  }
  for (const std::string& address : addresses) {
    Worker& worker = workers_.emplace_back();
    worker.address = address;
    worker.row = table_.Add(address);
    const auto found = known.find(address);
    const Worker* const same = found == known.end() ? nullptr : found->second;
    const auto connection = [&](const std::shared_ptr<WorkerConnection>& of_same, bool held) {
      return same != nullptr ? of_same : std::make_shared<WorkerConnection>(MakeChannel(address, held));
    };
    worker.open = connection(same != nullptr ? same->open : nullptr, false);
    if (options_.may_hold) worker.held = connection(same != nullptr ? same->held : nullptr, true);
  }
}

// What was moved from has no workers.
WorkerChannels::~WorkerChannels() {
  for (const Worker& worker : workers_) table_.Remove(worker.row);
}

bool WorkerChannels::by_name(size_t worker) const {
  const std::string& address = workers_[worker].address;
  if (absl::StartsWith(address, "dns:")) return true;
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  if (!parsed.ok()) return false;
  boost::system::error_code no_address;
  boost::asio::ip::make_address(parsed->host, no_address);
  return static_cast<bool>(no_address);
}

std::shared_ptr<grpc::Channel> WorkerChannels::MakeChannel(size_t worker, bool first) const {
  return MakeChannel(workers_[worker].address, first && options_.may_hold);
}

std::shared_ptr<grpc::Channel> WorkerChannels::MakeChannel(const std::string& address, bool held) const {
  const auto credentials = options_.credentials ? options_.credentials : grpc::InsecureChannelCredentials();
  grpc::ChannelArguments arguments = WorkerArguments(options_, held);
  const std::optional<ReceiveWindow> window = IsLoopback(address) ? std::nullopt : options_.receive_window;
  const auto setup = [window](int fd) {
    NoticeDeadPeer(fd);  // a kernel that refuses it is no reason to do without the connection
    return !window.has_value() || BoundReceiveWindow(*window, fd);
  };
  SetUpSockets(setup, arguments);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

std::vector<size_t> WorkerChannels::Connect(absl::Duration timeout) const {
  // gRPC waits on the wall clock here; a jump of it makes this wait shorter or longer, and loses nothing.
  const auto deadline = std::chrono::system_clock::now() + absl::ToChronoMilliseconds(std::min(timeout, kLongest));
  for (size_t first = 0; first < size() && std::chrono::system_clock::now() < deadline; first += kHandshakesAtOnce) {
    const size_t end = std::min(first + kHandshakesAtOnce, size());
    for (size_t i = first; i < end; ++i) workers_[i].first()->channel()->GetState(/*try_to_connect=*/true);
    for (size_t i = first; i < end; ++i) AwaitHandshake(*workers_[i].first()->channel(), deadline);
  }
  std::vector<size_t> unconnected;
  for (size_t i = 0; i < size(); ++i) {
    if (workers_[i].first()->channel()->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_READY)
      unconnected.push_back(i);
  }
  return unconnected;
}

}  // namespace sluice

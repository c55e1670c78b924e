#include "lib/telemetry/admin_server.h"

#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <sstream>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "lib/net/socket_address.h"
#include "lib/telemetry/http_session.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"

namespace sluice {
namespace {

using boost::asio::ip::tcp;

constexpr size_t kMaxConnections = 64;
constexpr std::chrono::milliseconds kAcceptRetryDelay{100};

std::string CollectText(const std::vector<const prometheus::Collectable*>& collectables) {
  std::vector<prometheus::MetricFamily> families;
  for (const prometheus::Collectable* collectable : collectables) {
    for (prometheus::MetricFamily& family : collectable->Collect()) families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

HttpReply ToReply(const std::function<absl::Status()>& state) {
  const absl::Status now = state ? state() : absl::OkStatus();
  if (now.ok()) return {.body = "ok\n"};
  return {.status = boost::beast::http::status::service_unavailable, .body = absl::StrCat(now.message(), "\n")};
}

HttpReply Route(const AdminServer::Options& options, const std::string& path) {
  if (path == "/metrics") {
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = CollectText(options.collectables)};
  }
  if (path == "/livez") return ToReply(options.live);
  if (path == "/readyz" || path == "/healthz") return ToReply(options.ready);
  if (const auto page = options.pages.find(path); page != options.pages.end()) {
    return {.content_type = page->second.content_type, .body = page->second.body()};
  }
  if (path == "/") {
    return {.content_type = "text/html; charset=utf-8",
            .body = absl::StrCat(
                "<!doctype html><title>", options.name, "</title><h1>", options.name,
                "</h1><p><a href=\"metrics\">metrics</a> <a href=\"livez\">livez</a> <a href=\"readyz\">readyz</a>\n")};
  }
  return {.status = boost::beast::http::status::not_found, .body = "not found; try /metrics, /livez or /readyz\n"};
}

const char* RemedyFor(const boost::system::error_code& error) {
  namespace errc = boost::system::errc;
  if (error == errc::address_in_use) return "; stop the process that has this port, or give a different port";
  if (error == errc::address_not_available) return "; give an address of this machine, or :PORT for all of them";
  if (error == errc::permission_denied) return "; give a port that this user may open, from 1024 on";
  return "; give an IP address or a name of this machine, and a port";
}

absl::Status ListenError(const AdminServer::Options& options, const boost::system::error_code& error) {
  return absl::UnavailableError(
      absl::StrCat(options.field, ": cannot listen on ", options.listen, ": ", error.message(), RemedyFor(error)));
}

absl::StatusOr<tcp::acceptor> Listen(boost::asio::io_context& context, const AdminServer::Options& options) {
  // Names of this machine resolve at once.
  const absl::StatusOr<tcp::endpoint> endpoint = ResolveListenAddress(options.listen);
  if (!endpoint.ok()) {
    return absl::Status(endpoint.status().code(), absl::StrCat(options.field, ": ", endpoint.status().message()));
  }
  tcp::acceptor acceptor(context);
  boost::system::error_code error;
  if (options.passed != nullptr) {
    if (const std::optional<int> passed = options.passed->Take(FormatSocketAddress(*endpoint))) {
      acceptor.assign(endpoint->protocol(), *passed, error);
      if (error) return ListenError(options, error);
      return acceptor;
    }
  }
  acceptor.open(endpoint->protocol(), error);
  // Lets a restarted program bind its port although old connections are in TIME_WAIT; a port in use stays refused.
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(*endpoint, error);
  if (!error) acceptor.listen(boost::asio::socket_base::max_listen_connections, error);
  if (error) return ListenError(options, error);
  return acceptor;
}

}  // namespace

// Accepts connections and owns their sessions. There is one for each server. Runs on the IO thread only after
// construction.
class AdminServer::Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  Acceptor(tcp::acceptor acceptor, Options options)
      : acceptor_(std::move(acceptor)), retry_(acceptor_.get_executor()), options_(std::move(options)) {}

  void Accept() {
    acceptor_.async_accept([self = shared_from_this()](const boost::system::error_code& error, tcp::socket socket) {
      if (!self->acceptor_.is_open()) return;
      if (error) return self->AcceptLater();
      self->Add(std::move(socket));
      self->Accept();
    });
  }

  void Close() {
    boost::system::error_code ignored;
    // As in AsioListener: other processes may hold the socket, too.
    if (acceptor_.is_open()) close(acceptor_.release(ignored));
    retry_.cancel();
    for (const auto& session : sessions_) session->Close();
    sessions_.clear();
  }

 private:
  using Sessions = std::list<std::shared_ptr<HttpSession>>;

  // The usual cause is a lack of file descriptors. An immediate retry would keep the thread busy.
  void AcceptLater() {
    retry_.expires_after(kAcceptRetryDelay);
    retry_.async_wait([self = shared_from_this()](const boost::system::error_code&) {
      if (self->acceptor_.is_open()) self->Accept();
    });
  }

  void Add(tcp::socket socket) {
    if (sessions_.size() == kMaxConnections) {
      sessions_.front()->Close();
      sessions_.pop_front();
    }
    const auto position = sessions_.emplace(sessions_.end());
    // A session that is closed by this class does not call back, so `this` and `position` are valid in these callbacks.
    *position = std::make_shared<HttpSession>(
        std::move(socket), absl::ToChronoMilliseconds(options_.request_timeout),
        [this](const std::string& path) { return Route(options_, path); },
        [this, position] { sessions_.erase(position); });
    (*position)->Start();
  }

  tcp::acceptor acceptor_;
  boost::asio::steady_timer retry_;
  const Options options_;
  Sessions sessions_;  // the oldest first
};

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(boost::asio::io_context& context, Options options) {
  absl::StatusOr<tcp::acceptor> socket = Listen(context, options);
  if (!socket.ok()) return socket.status();
  boost::system::error_code error;
  const tcp::endpoint endpoint = socket->local_endpoint(error);
  if (error) return ListenError(options, error);
  std::ostringstream address;
  address << endpoint;
  auto acceptor = std::make_shared<Acceptor>(*std::move(socket), std::move(options));
  boost::asio::post(context, [acceptor] { acceptor->Accept(); });
  return std::unique_ptr<AdminServer>(new AdminServer(context, std::move(acceptor), address.str()));
}

AdminServer::AdminServer(boost::asio::io_context& context, std::shared_ptr<Acceptor> acceptor, std::string address)
    : context_(context), acceptor_(std::move(acceptor)), address_(std::move(address)) {}

AdminServer::~AdminServer() {
  absl::Notification closed;
  boost::asio::post(context_, [this, &closed] {
    acceptor_->Close();
    closed.Notify();
  });
  closed.WaitForNotification();
}

}  // namespace sluice

#include "lib/net/asio_resolution.h"

#include <algorithm>
#include <optional>
#include <utility>  // Boost 1.74 misses it in C++20
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/net/socket_address.h"
#include "lib/net/worker_address.h"

namespace sluice {
namespace {

using boost::asio::ip::tcp;

// One look-up. Its caller owns it. The pending steps hold weak references and do nothing once it is dropped.
struct Resolution {
  explicit Resolution(Executor::OnResolved callback) : on_resolved(std::move(callback)) {}

  Executor::OnResolved on_resolved;
};

void Answer(const std::weak_ptr<Resolution>& question, absl::StatusOr<std::vector<WorkerAddress>> answer) {
  if (const std::shared_ptr<Resolution> asked = question.lock()) {
    std::exchange(asked->on_resolved, nullptr)(std::move(answer));
  }
}

// Keeps the order of getaddrinfo (RFC 6724): reachable addresses come first.
std::vector<WorkerAddress> AddressesOf(const tcp::resolver::results_type& results) {
  std::vector<WorkerAddress> addresses;
  for (const auto& result : results) {
    WorkerAddress address{FormatSocketAddress(result.endpoint())};
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) {
      addresses.push_back(std::move(address));
    }
  }
  return addresses;
}

absl::StatusOr<std::vector<WorkerAddress>> LookUp(const std::string& host, int port) {
  boost::asio::io_context context;  // the resolver requires a context, and does not use it in a blocking call
  tcp::resolver resolver(context);
  boost::system::error_code error;
  const tcp::resolver::results_type results =
      resolver.resolve(host, absl::StrCat(port), tcp::resolver::numeric_service, error);
  const bool unknown = error == boost::asio::error::host_not_found || error == boost::asio::error::no_data;
  if (unknown || (!error && results.empty())) {
    return absl::NotFoundError(absl::StrCat("look up ", host, ": there is no such name, or it has no address"));
  }
  if (error) return absl::UnavailableError(absl::StrCat("look up ", host, ": ", error.message()));
  return AddressesOf(results);
}

}  // namespace

std::shared_ptr<void> StartResolution(AsioExecutor& executor, const std::string& target,
                                      Executor::OnResolved on_resolved) {
  auto question = std::make_shared<Resolution>(std::move(on_resolved));
  const std::weak_ptr<Resolution> weak = question;
  absl::StatusOr<WorkerTarget> parsed = ParseWorkerTarget(target);
  if (!parsed.ok()) {
    executor.Post([weak, status = parsed.status()] { Answer(weak, status); });
    return question;
  }
  if (!parsed->addresses.empty()) {
    executor.Post([weak, addresses = std::move(parsed->addresses)] { Answer(weak, addresses); });
    return question;
  }
  const auto look_up = [&executor, weak, host = parsed->host, port = parsed->port]() -> std::optional<bool> {
    if (weak.expired()) return std::nullopt;  // the caller has dropped the look-up
    const auto& of_test = executor.options().look_up;
    const auto answer = of_test != nullptr ? of_test(host, port) : LookUp(host, port);
    executor.Post([weak, answer] { Answer(weak, answer); });
    return answer.ok();
  };
  executor.look_ups().Run(parsed->host, look_up);
  return question;
}

}  // namespace sluice

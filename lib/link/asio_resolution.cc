#include "lib/link/asio_resolution.h"

#include <algorithm>
#include <utility>  // Boost 1.74 misses it in C++20
#include <vector>

#include <boost/asio/ip/tcp.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/link/socket_address.h"
#include "lib/link/worker_address.h"

namespace sluice {
namespace {

using boost::asio::ip::tcp;

// One question. Who asked holds it; what is on the way to an answer does not, and does nothing once it is dropped.
struct Resolution {
  Resolution(AsioExecutor& executor, Executor::OnResolved callback)
      : resolver(executor.context()), on_resolved(std::move(callback)) {}

  tcp::resolver resolver;
  Executor::OnResolved on_resolved;
};

void Answer(const std::weak_ptr<Resolution>& question, absl::StatusOr<std::vector<WorkerAddress>> answer) {
  if (const std::shared_ptr<Resolution> asked = question.lock()) {
    std::exchange(asked->on_resolved, nullptr)(std::move(answer));
  }
}

// In the order of getaddrinfo (RFC 6724): those that can be reached come first.
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

}  // namespace

std::shared_ptr<void> StartResolution(AsioExecutor& executor, const std::string& target,
                                      Executor::OnResolved on_resolved) {
  auto question = std::make_shared<Resolution>(executor, std::move(on_resolved));
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
  question->resolver.async_resolve(
      parsed->host, absl::StrCat(parsed->port), tcp::resolver::numeric_service,
      [weak, host = parsed->host](const boost::system::error_code& error, const tcp::resolver::results_type& results) {
        const bool unknown = error == boost::asio::error::host_not_found || error == boost::asio::error::no_data;
        if (unknown || (!error && results.empty())) {
          Answer(weak,
                 absl::NotFoundError(absl::StrCat("look up ", host, ": there is no such name, or it has no address")));
        } else if (error) {
          Answer(weak, absl::UnavailableError(absl::StrCat("look up ", host, ": ", error.message())));
        } else {
          Answer(weak, AddressesOf(results));
        }
      });
  return question;
}

}  // namespace sluice

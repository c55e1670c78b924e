#include "tools/unreachable.h"

#include <memory>
#include <utility>

#include "sluice/fan_out.h"
#include "sluice/link.h"

namespace sluice {

absl::Status ExplainUnreachable(const absl::Status& failed, const std::string& address,
                                const std::optional<TlsOptions>& tls, absl::Duration timeout) {
  if (timeout <= absl::ZeroDuration()) return failed;
  auto link = Link::Create(LinkProfile());
  if (!link.ok()) return failed;
  auto fan_out = FanOut::Create(*std::move(link), {.workers = {address}, .tls = tls});
  if (!fan_out.ok()) return failed;
  // Any response proves that the server is reachable, even UNIMPLEMENTED. Do not retry: the first failure is the
  // reason.
  const Method<std::string, std::string> check{"/grpc.health.v1.Health/Check"};
  const FanOutResult result = (*fan_out)->Call(
      check, [](size_t) { return std::string(); }, [](size_t, const std::string&) { return absl::OkStatus(); },
      {.timeout = timeout, .retry_on = {}});
  if (result.failures.empty() || !absl::IsUnavailable(result.failures.front().status)) return failed;
  return result.failures.front().status;
}

}  // namespace sluice

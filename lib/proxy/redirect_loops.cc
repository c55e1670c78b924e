#include "lib/proxy/redirect_loops.h"

#include "absl/strings/str_cat.h"
#include "lib/net/socket_address.h"

namespace sluice {

void RedirectLoops::Client::Leave() {
  for (const std::string& side : sides_) loops_.sides_.erase(side);
  sides_.clear();
}

absl::Status RedirectLoops::Client::Add(const std::string& source, const std::string& destination) {
  std::string side = absl::StrCat(source, " to ", destination);
  const auto [place, is_new] = loops_.sides_.try_emplace(side, this);
  if (is_new) {
    sides_.push_back(std::move(side));
    return absl::OkStatus();
  }
  if (Client* const other = place->second; other != this) other->reset_();
  return absl::FailedPreconditionError(
      "a connection of this proxy was redirected to the proxy; exempt the proxy's user from the rule");
}

absl::Status RedirectLoops::Client::AddDialled(const std::optional<TcpSocket>& dialled) {
  if (!dialled.has_value()) return absl::OkStatus();
  return Add(FormatSocketAddress(dialled->local), FormatSocketAddress(dialled->remote));
}

}  // namespace sluice

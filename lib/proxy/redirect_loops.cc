#include "lib/proxy/redirect_loops.h"

#include "absl/strings/str_cat.h"

namespace sluice {

void RedirectLoops::Client::Leave() {
  for (const std::string& side : sides_) loops_.sides_.erase(side);
  sides_.clear();
}

bool RedirectLoops::Client::Add(const std::string& source, const std::string& destination) {
  std::string side = absl::StrCat(source, " to ", destination);
  const auto [place, is_new] = loops_.sides_.try_emplace(side, this);
  if (is_new) {
    sides_.push_back(std::move(side));
    return true;
  }
  if (Client* const other = place->second; other != this) other->reset_();
  return false;
}

}  // namespace sluice

#include "lib/cli/log_limit.h"

#include <utility>

namespace sluice {

std::optional<int64_t> LogLimit::Take(const std::string& key, TimePoint now) {
  if (const auto found = keys_.find(key); found != keys_.end() && now < found->second.next) {
    ++found->second.left_out;
    return std::nullopt;
  }
  if (!keys_.contains(key) && keys_.size() >= max_keys_) ForgetOld(now);
  if (!keys_.contains(key) && keys_.size() >= max_keys_) {
    ++left_out_;
    return std::nullopt;
  }
  Key& entry = keys_[key];
  entry.next = now + interval_;
  return std::exchange(entry.left_out, 0) + std::exchange(left_out_, 0);
}

void LogLimit::ForgetOld(TimePoint now) {
  std::erase_if(keys_, [&](const auto& entry) {
    if (now < entry.second.next) return false;
    left_out_ += entry.second.left_out;
    return true;
  });
}

}  // namespace sluice

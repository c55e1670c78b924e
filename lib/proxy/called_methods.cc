#include "lib/proxy/called_methods.h"

#include <cstddef>

namespace sluice {
namespace {

constexpr size_t kMaxMethods = 1024;

}  // namespace

std::optional<int64_t> CalledMethods::ResponseBytes(const std::string& path) const {
  const auto found = methods_.find(path);
  return found == methods_.end() ? std::nullopt : found->second.history.ResponseBytes();
}

bool CalledMethods::MayIdle(const std::string& path) const {
  const auto found = methods_.find(path);
  return found == methods_.end() || !found->second.unary;
}

void CalledMethods::ObserveResponse(const std::string& path, int64_t bytes, bool one_message) {
  if (methods_.size() >= kMaxMethods && !methods_.contains(path)) return;
  Method& method = methods_[path];
  method.history.ObserveResponse(bytes);
  method.unary = one_message;
}

}  // namespace sluice

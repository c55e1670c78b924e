#include "lib/scheduling/breaches.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace sluice {
namespace {

#ifdef NDEBUG
constexpr Breaches::Response kDefaultResponse = Breaches::Response::kCount;
#else
constexpr Breaches::Response kDefaultResponse = Breaches::Response::kAbort;
#endif

// The compiler's name of a file may begin with the folder in which it was built.
std::string_view RelativeToSources(std::string_view file) {
  const size_t lib = file.rfind("/lib/");
  return lib == std::string_view::npos ? file : file.substr(lib + 1);
}

}  // namespace

Breaches::Breaches() : Breaches(kDefaultResponse) {}

bool Breaches::Add(const char* condition, const char* file, int line) {
  if (response_ == Response::kAbort) {
    std::fprintf(stderr, "%s:%d: invariant does not hold: %s\n", file, line, condition);
    std::abort();
  }
  if (first_.breaches == 0) first_ = {.condition = condition, .file = RelativeToSources(file), .line = line};
  ++first_.breaches;
  return false;
}

std::optional<InvariantBreach> Breaches::Take() {
  if (first_.breaches == 0) return std::nullopt;
  return std::exchange(first_, {});
}

}  // namespace sluice

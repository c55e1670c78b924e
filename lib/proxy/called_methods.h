#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "lib/link/method_history.h"

namespace sluice {

// The sizes and kinds of responses that a proxy learns for each method, since it has no description of the methods. The
// number of methods is bounded, since clients choose the names. There is one for each proxy. Not thread-safe.
class CalledMethods {
 public:
  // The size of the method's next response; nullopt: unknown.
  std::optional<int64_t> ResponseBytes(const std::string& path) const;
  // Whether calls of this method may stay open between messages. A method is assumed to be unary if its last response
  // that ended had one message.
  bool MayIdle(const std::string& path) const;
  void ObserveResponse(const std::string& path, int64_t bytes, bool one_message);

 private:
  struct Method {
    MethodHistory history;
    bool unary = false;
  };

  absl::flat_hash_map<std::string, Method> methods_;
};

}  // namespace sluice

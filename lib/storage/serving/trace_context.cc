#include "lib/storage/serving/trace_context.h"

#include <string>

#include "lib/grpc_wire/metadata.h"

namespace sluice {
namespace {

// W3C's Trace Context, sections 3.2 and 3.3.1.5: a receiver forwards at least 512 characters of the state.
constexpr size_t kMaxBytes = 1024;

}  // namespace

Metadata TraceContext(const grpc::ServerContextBase& context) {
  Metadata found;
  for (const char* key : {"traceparent", "tracestate"}) {
    const auto range = context.client_metadata().equal_range(key);
    for (auto field = range.first; field != range.second; ++field) {
      if (field->second.size() <= kMaxBytes) {
        found.emplace_back(key, std::string(field->second.data(), field->second.size()));
      }
    }
  }
  const bool has_parent = !found.empty() && found.front().first == "traceparent";
  return has_parent && ValidateMetadata(found).ok() ? found : Metadata();
}

}  // namespace sluice

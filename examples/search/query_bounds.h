#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::examples::search {

// Bounds of QueryRequest, which limit the cost of a response for a worker and on the wire.
constexpr size_t kMaxQueryBytes = 4096;
constexpr uint32_t kMaxHits = 1000;
constexpr uint32_t kMaxSnippetBytes = 4096;

}  // namespace sluice::examples::search

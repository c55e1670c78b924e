#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sluice {

// Bytes [begin, end).
struct ByteRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// Ranges in order, without empty and without overlapping ones.
using ByteRanges = std::vector<ByteRange>;

// Returns the bytes that are in both.
inline ByteRanges Intersect(const ByteRanges& a, const ByteRanges& b) {
  ByteRanges both;
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    const ByteRange common = {std::max(x->begin, y->begin), std::min(x->end, y->end)};
    if (common.begin < common.end) both.push_back(common);
    if (x->end < y->end) {
      ++x;
    } else {
      ++y;
    }
  }
  return both;
}

// Returns the bytes of `range` that are in none of `holes`, which must lie within it.
inline ByteRanges Without(const ByteRange& range, const ByteRanges& holes) {
  ByteRanges rest;
  uint64_t begin = range.begin;
  for (const ByteRange& hole : holes) {
    if (begin < hole.begin) rest.push_back({begin, hole.begin});
    begin = hole.end;
  }
  if (begin < range.end) rest.push_back({begin, range.end});
  return rest;
}

}  // namespace sluice

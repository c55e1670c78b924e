#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// The bytes of one stream that wait for their DATA frames, first in, first out. Not thread-safe.
class UnsentData {
 public:
  void Append(std::string bytes);
  size_t size() const { return bytes_.size() - sent_bytes_; }
  bool empty() const { return size() == 0; }
  // The first bytes; valid until the next Append or Remove.
  absl::string_view Front(size_t bytes) const { return absl::string_view(bytes_).substr(sent_bytes_, bytes); }
  void Remove(size_t bytes);

 private:
  std::string bytes_;
  size_t sent_bytes_ = 0;  // number of sent bytes at the beginning of bytes_
};

}  // namespace sluice

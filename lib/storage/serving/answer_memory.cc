#include "lib/storage/serving/answer_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {

absl::Status AnswerMemory::Share::Take(uint64_t bytes) {
  memory_.used_bytes_.fetch_sub(std::exchange(bytes_, 0));
  uint64_t before = memory_.used_bytes_;
  while (before + bytes <= memory_.max_bytes_) {
    if (!memory_.used_bytes_.compare_exchange_weak(before, before + bytes)) continue;
    bytes_ = bytes;
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("responses of ", before, " bytes wait to be sent; at most ",
                                                   memory_.max_bytes_, " may; try again later"));
}

}  // namespace sluice

#include "tests/testbed/answer_workload.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/cli/units.h"

namespace sluice::testbed {
namespace {

constexpr int64_t kMaxBytes = int64_t{64} << 20;

}  // namespace

absl::StatusOr<AnswerShape> ParseResponseBytes(const std::string& text) {
  const size_t colon = text.find(':');
  const absl::StatusOr<int64_t> min_bytes = ParseByteSize(text.substr(0, colon));
  if (!min_bytes.ok()) return min_bytes.status();
  const absl::StatusOr<int64_t> max_bytes =
      colon == std::string::npos ? min_bytes : ParseByteSize(text.substr(colon + 1));
  if (!max_bytes.ok()) return max_bytes.status();
  if (*min_bytes < 1 || *min_bytes > *max_bytes || *max_bytes > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\": give a size, or two as in 200:200000, from 1 to ", kMaxBytes, " bytes"));
  }
  return AnswerShape{.min_bytes = static_cast<uint32_t>(*min_bytes), .max_bytes = static_cast<uint32_t>(*max_bytes)};
}

std::vector<v1::AnswerRequest> AnswerWorkload::NextBlock(size_t workers) {
  std::vector<v1::AnswerRequest> requests(workers);
  for (v1::AnswerRequest& request : requests) {
    request.set_response_bytes(DrawBytes());
    request.set_messages(shape_.messages);
    request.set_think_us(shape_.think_us);
    request.set_tail_think_us(shape_.tail_think_us);
    request.set_tail_share(shape_.tail_share);
    request.set_error_details_bytes(shape_.error_details_bytes);
  }
  return requests;
}

uint32_t AnswerWorkload::DrawBytes() {
  std::uniform_real_distribution<double> log_bytes(std::log(shape_.min_bytes), std::log(shape_.max_bytes));
  return std::clamp(static_cast<uint32_t>(std::lround(std::exp(log_bytes(random_)))), shape_.min_bytes,
                    shape_.max_bytes);
}

absl::Status BlockRecord::Add(const v1::AnswerRequest& request, const v1::AnswerResponse& response) {
  if (response.payload().size() != request.response_bytes()) {
    return absl::DataLossError(absl::StrCat("an answer of ", response.payload().size(), " bytes where ",
                                            request.response_bytes(), " were asked for"));
  }
  bytes += request.response_bytes();
  if (!response.tail()) {
    usual_bytes += request.response_bytes();
    usual_ended = Clock::now();
  }
  return absl::OkStatus();
}

}  // namespace sluice::testbed

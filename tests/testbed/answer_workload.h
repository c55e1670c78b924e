#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "answers.pb.h"

namespace sluice::testbed {

// The shape of one reader's responses. Their sizes are drawn log-uniformly from a range.
struct AnswerShape {
  uint32_t min_bytes = 10240;
  uint32_t max_bytes = 10240;
  uint32_t messages = 1;  // messages in each response; a response of several is a stream
  uint32_t think_us = 0;
  uint32_t tail_think_us = 0;
  double tail_share = 0;
  uint32_t error_details_bytes = 0;  // not 0: the calls fail with this many bytes of details
};

// Parses "10kb", or a range such as "200:200000". InvalidArgument quotes the text.
absl::StatusOr<AnswerShape> ParseResponseBytes(const std::string& text);

// The requests of one reader, block after block. One for each reader. The same seed draws the same sizes. Not
// thread-safe.
class AnswerWorkload {
 public:
  AnswerWorkload(const AnswerShape& shape, uint32_t seed) : shape_(shape), random_(seed) {}

  std::vector<v1::AnswerRequest> NextBlock(size_t workers);

 private:
  uint32_t DrawBytes();

  const AnswerShape shape_;
  std::mt19937 random_;
};

// The outcome of the responses of one block. A usual response is one that its server did not draw into the tail.
struct BlockRecord {
  using Clock = std::chrono::steady_clock;

  // Counts a message. Returns DataLoss if the message does not match the request.
  absl::Status Add(const v1::AnswerRequest& request, const v1::AnswerResponse& response);

  Clock::time_point started = Clock::now();
  Clock::time_point usual_ended = started;  // when the last usual response arrived
  int64_t bytes = 0;
  int64_t usual_bytes = 0;
  size_t retries = 0;
  size_t hedges = 0;
  size_t hedges_won = 0;
};

}  // namespace sluice::testbed

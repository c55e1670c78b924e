// Reads an object that 6 workers have in a 4+2 erasure code, and writes it to standard output: coded_read WORKER...
// Each stripe needs any 4 of the 6 responses, so up to two workers may be gone or slow.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "sluice/fan_out.h"

#include "examples/coded-read/erasure_code.h"
#include "examples/coded-read/fragments.pb.h"

namespace {

using Clock = std::chrono::steady_clock;

// [snippet]
// Returns the bytes of a stripe, and the size of the object.
absl::StatusOr<std::pair<std::string, uint64_t>> ReadStripe(sluice::FanOut& workers, uint64_t stripe) {
  const sluice::Method<coded::FragmentRequest, coded::Fragment> get{"/coded.Fragments/Get"};
  coded::FragmentRequest request;
  request.set_stripe(stripe);
  coded::StripeFragments fragments;
  uint64_t object_bytes = 0;
  const sluice::FanOutResult result = workers.Call(
      get, [&request](size_t /*worker*/) { return request; },
      [&](size_t worker, coded::Fragment response) {
        fragments[worker] = std::move(*response.mutable_data());
        object_bytes = response.object_bytes();
        return absl::OkStatus();
      },
      // Any 4 of the 6 are enough. The other calls are cancelled.
      {.timeout = absl::Seconds(5), .success_quorum = coded::kData});
  if (!result.status.ok()) return result.status;
  std::optional<std::string> bytes = coded::Decode(std::move(fragments));
  if (!bytes.has_value()) return absl::DataLossError("the fragments do not make a stripe");
  return std::pair(*std::move(bytes), object_bytes);
}
// [snippet]

}  // namespace

int main(int argc, char** argv) {
  if (argc != 1 + static_cast<int>(coded::kFragments)) {
    return std::cerr << "usage: " << argv[0] << " WORKER..., the " << coded::kFragments << " workers by fragment\n", 2;
  }
  sluice::LinkProfile profile;
  profile.capacity_bytes_per_second = 1e9 / 8;  // the last hop into this host
  profile.buffer_bytes = 128 * 1024;            // of the switch port that feeds it
  auto link = sluice::Link::Create(profile);
  if (!link.ok()) return std::cerr << link.status() << '\n', 1;
  auto workers = sluice::FanOut::Create(*link, {.workers = {argv + 1, argv + argc}});
  if (!workers.ok()) return std::cerr << workers.status() << '\n', 1;

  std::vector<double> milliseconds;
  for (uint64_t stripe = 0, left = 1; left > 0; ++stripe) {
    const Clock::time_point began = Clock::now();
    auto read = ReadStripe(**workers, stripe);
    if (!read.ok()) return std::cerr << "stripe " << stripe << ": " << read.status() << '\n', 1;
    milliseconds.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
    const uint64_t at = stripe * coded::kStripeBytes;
    left = read->second > at ? read->second - at : 0;
    std::cout.write(read->first.data(), static_cast<std::streamsize>(std::min<uint64_t>(left, read->first.size())));
    left -= std::min<uint64_t>(left, read->first.size());
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  std::cerr << milliseconds.size() << " stripes, p50 " << milliseconds[milliseconds.size() / 2] << " ms, p99 "
            << milliseconds[milliseconds.size() * 99 / 100] << " ms\n";
  return std::cout.flush() ? 0 : 1;
}

// Reads an object that 6 workers have in a 4+2 erasure code, and writes it to standard output: coded_read WORKER...
// Each stripe needs any 4 of the 6 responses, so up to two workers may be gone, slow or wrong. The output is right if
// the exit code is 0: the checksum of the whole object is checked at its end.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/fan_out.h"

#include "absl/strings/str_cat.h"
#include "examples/coded-read/checksums.h"
#include "examples/coded-read/erasure_code.h"
#include "examples/coded-read/fragments.pb.h"

namespace {

using Clock = std::chrono::steady_clock;

// Returns the version of which at least 4 workers have fragments. A worker that was gone during a write has an older
// one.
absl::StatusOr<coded::ObjectVersion> FindVersion(sluice::FanOut& workers) {
  const sluice::Method<coded::DescribeRequest, coded::ObjectVersion> describe{"/coded.Fragments/Describe"};
  // Usually any 4 workers agree. If they do not, wait for all: two versions cannot both have 4 of 6 fragments.
  for (const bool all : {false, true}) {
    std::map<std::string, size_t> votes;
    coded::ObjectVersion found;
    sluice::FanOutOptions options{.timeout = absl::Seconds(5)};
    if (all) {
      options.fail_limit = coded::kFragments;
    } else {
      options.success_quorum = coded::kData;
    }
    const sluice::FanOutResult result = workers.Call(
        describe, [](size_t /*worker*/) { return coded::DescribeRequest(); },
        [&](size_t /*worker*/, coded::ObjectVersion version) {
          if (++votes[version.SerializeAsString()] == coded::kData) found = std::move(version);
          return absl::OkStatus();
        },
        options);
    if (!found.sha256().empty()) return found;
    if (!result.status.ok()) return result.status;
  }
  return absl::DataLossError(absl::StrCat("no version of the object has ", coded::kData, " fragments"));
}

// [snippet]
// Returns the bytes of a stripe. Adds the fragments that were refused to `refused`.
absl::StatusOr<std::string> ReadStripe(sluice::FanOut& workers, const coded::ObjectVersion& version, uint64_t stripe,
                                       size_t& refused) {
  const sluice::Method<coded::FragmentRequest, coded::Fragment> get{"/coded.Fragments/Get"};
  coded::FragmentRequest request;
  request.set_stripe(stripe);
  coded::StripeFragments fragments;
  const sluice::FanOutResult result = workers.Call(
      get, [&request](size_t /*worker*/) { return request; },
      [&](size_t worker, coded::Fragment response) {
        // One of the other workers replaces a worker whose response is refused.
        if (response.version() != version.sha256() || response.crc32c() != coded::Crc32c(response.data())) {
          ++refused;
          return absl::DataLossError("the fragment is of a different version, or has changed since it was written");
        }
        fragments[worker] = std::move(*response.mutable_data());
        return absl::OkStatus();
      },
      // Any 4 of the 6 are enough. The other calls are cancelled.
      {.timeout = absl::Seconds(5), .success_quorum = coded::kData});
  if (!result.status.ok()) return result.status;
  std::optional<std::string> bytes = coded::Decode(std::move(fragments));
  if (!bytes.has_value()) return absl::DataLossError("the fragments do not make a stripe");
  return *std::move(bytes);
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

  const auto version = FindVersion(**workers);
  if (!version.ok()) return std::cerr << "version: " << version.status() << '\n', 1;

  std::vector<double> milliseconds;
  size_t refused = 0;
  coded::Sha256 sum;
  for (uint64_t at = 0; at < version->bytes(); at += coded::kStripeBytes) {
    const uint64_t stripe = at / coded::kStripeBytes;
    const Clock::time_point began = Clock::now();
    auto bytes = ReadStripe(**workers, *version, stripe, refused);
    if (!bytes.ok()) return std::cerr << "stripe " << stripe << ": " << bytes.status() << '\n', 1;
    milliseconds.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
    bytes->resize(std::min<uint64_t>(bytes->size(), version->bytes() - at));
    sum.Add(*bytes);
    std::cout.write(bytes->data(), static_cast<std::streamsize>(bytes->size()));
  }
  // The checksums of fragments do not show that each worker has the fragment of its number.
  if (sum.Finish() != version->sha256()) return std::cerr << "the bytes do not match the SHA-256 of the object\n", 1;
  std::sort(milliseconds.begin(), milliseconds.end());
  if (!milliseconds.empty()) {
    std::cerr << milliseconds.size() << " stripes, p50 " << milliseconds[milliseconds.size() / 2] << " ms, p99 "
              << milliseconds[milliseconds.size() * 99 / 100] << " ms, " << refused << " fragments refused\n";
  }
  return std::cout.flush() ? 0 : 1;
}

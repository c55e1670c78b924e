#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::testing {

// What may go wrong in a simulated world.
enum class Fault {
  kHang,            // the worker never answers
  kHangInAnswer,    // it stops in the middle of an answer
  kSlow,            // it thinks for long
  kError,           // it answers with a status
  kErrorLate,       // the status comes behind a part of the answer
  kShort,           // the message ends before its length prefix says
  kCorrupt,         // a byte of the message is another one
  kReset,           // RST_STREAM
  kRefused,         // REFUSED_STREAM: it never looked at the request
  kGoAway,          // the server goes away, and finishes what it has begun
  kLost,            // the connection is lost
  kGarbage,         // bytes that are not HTTP/2
  kConnectRefused,  // nobody listens
  kConnectHangs,    // nobody says so
  kEarlyHeaders,    // the headers come long before the answer
  kExtraMessage,    // a second message of a unary call
};
inline constexpr size_t kFaults = 16;
inline constexpr std::array<const char*, kFaults> kFaultNames = {
    "hang",          "hang in answer", "slow",    "error", "late error", "short message",   "corrupt byte",
    "reset",         "refused",        "go away", "lost",  "garbage",    "connect refused", "connect hangs",
    "early headers", "extra message"};

// How often each fault was hit, over all runs.
struct FaultCounts {
  std::array<uint64_t, kFaults> hits{};

  void Count(Fault fault) { ++hits[static_cast<size_t>(fault)]; }
  void Add(const FaultCounts& other) {
    for (size_t i = 0; i < kFaults; ++i) hits[i] += other.hits[i];
  }
  std::string ToString() const {
    std::string text;
    for (size_t i = 0; i < kFaults; ++i) absl::StrAppend(&text, text.empty() ? "" : ", ", kFaultNames[i], " ", hits[i]);
    return text;
  }
};

// Everything random in a world comes from here. Own arithmetic, since the distributions of the standard library may
// differ from one to the next.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  uint64_t Below(uint64_t bound) { return engine_() % bound; }
  int64_t Between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(Below(static_cast<uint64_t>(most - least + 1)));
  }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  double Fraction() { return static_cast<double>(engine_() >> 11) / static_cast<double>(uint64_t{1} << 53); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace sluice::testing

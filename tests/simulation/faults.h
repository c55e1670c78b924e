#pragma once

#include <array>
#include <cstdint>
#include <random>

namespace sluice::testing {

// What may go wrong in a simulated world, or come at a bad time.
enum class Fault {
  // Drawn for a request.
  kHang,          // the worker never answers
  kHangInAnswer,  // it stops in the middle of an answer
  kSlow,          // it thinks for long
  kError,         // it answers with a status
  kErrorLate,     // the status comes behind a part of the answer
  kShort,         // the message ends before its length prefix says
  kCorrupt,       // a byte of the message is another one
  kReset,         // RST_STREAM
  kRefused,       // REFUSED_STREAM: it never looked at the request
  kGoAway,        // the server goes away, and finishes what it has begun
  kLost,          // the connection is lost
  kGarbage,       // bytes that are not HTTP/2
  kEarlyHeaders,  // the headers come long before the answer
  kExtraMessage,  // a second message of a unary call
  kMalformed,     // trailers that do not end the stream, and data behind them
  // Drawn for a connection.
  kConnectRefused,  // nobody listens
  kConnectHangs,    // nobody says so
  // Of the world.
  kHungWorker,    // a request to a worker that answers none
  kReordered,     // events of different connections and timers come in another order
  kLateTurn,      // the link's thread is late by milliseconds
  kShortRead,     // a read ends anywhere
  kSlowReader,    // the application takes milliseconds for what it is given
  kPacketLost,    // the port overflows
  kStalled,       // bytes that were granted did not come in time
  kCancelled,     // the application wants no more of a fan-out
  kRationed,      // a connection has had all of the resets that it may have
  kOutOfStreams,  // a worker has no stream free
  kOutOfNumbers,  // a connection has used its last stream number
  kSlowSender,    // a request to a worker behind a slow link of its own
  kRateChanged,   // this link has another rate from now on
  kPaused,        // the process of a worker stops while responses are granted, and goes on
  kLargeHead,     // headers or trailers of 1 to 16 KB
  kErrorsInBulk,  // an error while all workers fail
  kDeadAddress,   // a SYN to a host that is away, one of hundreds
  kTlsHandshake,  // a handshake of TLS, beside these
  kMixedKinds,    // a stream and a unary call of one worker at the same time
  kEarlyBeside,   // bytes granted early, while another call of the worker waits for its grant
  // Of a proxy's clients.
  kHungClient,  // a call of a client that does not read
  kClientGone,  // its connection is lost
};
inline constexpr size_t kRequestFaults = static_cast<size_t>(Fault::kConnectRefused);
inline constexpr std::array kFaultNames = {
    "hang",          "hang in answer",  "slow",           "error",           "late error",    "short message",
    "corrupt byte",  "reset",           "refused",        "go away",         "lost",          "garbage",
    "early headers", "extra message",   "malformed",      "connect refused", "connect hangs", "hung worker",
    "reordered",     "late turn",       "short read",     "slow reader",     "packet lost",   "stalled",
    "cancelled",     "resets rationed", "out of streams", "out of numbers",  "slow sender",   "rate changed",
    "paused",        "large head",      "errors in bulk", "dead address",    "TLS handshake", "mixed kinds",
    "early beside",  "hung client",     "client gone"};
inline constexpr size_t kFaults = kFaultNames.size();
static_assert(kFaults == static_cast<size_t>(Fault::kClientGone) + 1);

// How often each fault was hit.
struct FaultCounts {
  std::array<uint64_t, kFaults> hits{};

  void Count(Fault fault, uint64_t times = 1) { hits[static_cast<size_t>(fault)] += times; }
  void Add(const FaultCounts& other) {
    for (size_t i = 0; i < kFaults; ++i) hits[i] += other.hits[i];
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

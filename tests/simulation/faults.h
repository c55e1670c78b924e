#pragma once

#include <array>
#include <cstdint>
#include <random>

namespace sluice::testing {

// The faults of a simulated world, and events that come at a bad time.
enum class Fault {
  // Drawn for each request.
  kHang,          // the worker never responds
  kHangInAnswer,  // it stops in the middle of a response
  kSlow,          // it thinks for a long time
  kError,         // it responds with a status
  kErrorLate,     // the status follows a part of the response
  kShort,         // the message is shorter than its length prefix
  kCorrupt,       // one byte of the message is wrong
  kReset,         // RST_STREAM
  kRefused,       // REFUSED_STREAM: it did not process the request
  kGoAway,        // the server goes away, and finishes the calls that it has begun
  kLost,          // the connection is lost
  kGarbage,       // bytes that are not HTTP/2
  kEarlyHeaders,  // the headers arrive long before the response
  kExtraMessage,  // a second message of a unary call
  kMalformed,     // trailers that do not end the stream, and data after them
  // Drawn for each connection.
  kConnectRefused,  // no server listens
  kConnectHangs,    // the host never replies
  // Faults of the world.
  kHungWorker,    // a request to a worker that never responds
  kReordered,     // events of different connections and timers change their order
  kLateTurn,      // the link's thread is late by milliseconds
  kShortRead,     // a read ends at any byte
  kSlowReader,    // the application takes milliseconds for each message
  kPacketLost,    // the port overflows
  kStalled,       // granted bytes did not arrive in time
  kCancelled,     // the application cancels a fan-out
  kRationed,      // a connection has used up its allowance of resets
  kOutOfStreams,  // a worker has no free stream
  kOutOfNumbers,  // a connection has used its last stream number
  kSlowSender,    // a request to a worker behind a slow link of its own
  kRateChanged,   // the slow link of a worker changes its rate
  kPaused,        // the process of a worker stops while responses are granted, and continues later
  kLargeHead,     // headers or trailers of 1 to 16 KB
  kErrorsInBulk,  // an error while all workers fail
  kDeadAddress,   // a SYN to one of hundreds of unreachable hosts
  kTlsHandshake,  // a TLS handshake at the same time
  kMixedKinds,    // a stream and a unary call of one worker at the same time
  kEarlyBeside,   // bytes are granted early while another call of the worker waits for its grant
  kLateBlock,     // a fan-out cannot make its deadline any more
  kGaveWay,       // a response of it waits with a response of another fan-out
  kSwitched,      // the policy changes while bytes are on the way
  kScheduled,     // the same, from unscheduled
  // Calls of different kinds.
  kBesideLarger,   // a response waits while a response of a larger block of its class is ready
  kShortDeadline,  // the deadline is shorter than the time of the expected sizes
  kBesideMany,     // a class is granted bytes while a thousand responses of a class of less weight are ready
  kErrorDetails,   // an error with large details from one worker, while the others are healthy
  kEarlyHung,      // bytes that were granted early do not come
  // Faults of a proxy's clients.
  kHungClient,  // a call of a client that does not read
  kClientGone,  // the connection of a client is lost
  // Faults of byte tunnels.
  kTunnelPause,     // a response pauses for longer than a silence, or a worker thinks for longer than usual
  kTunnelStop,      // a worker stops in the middle of a response
  kTunnelLost,      // the connection to the worker is lost
  kTunnelPipeline,  // a client sends requests without waiting
  kTunnelStuck,     // a client does not read for a while
  kTunnelSurprise,  // bytes came that no turn had room for
  kTunnelStream,    // a tunnel is a stream of the link, without the proxy
};
inline constexpr size_t kRequestFaults = static_cast<size_t>(Fault::kConnectRefused);
inline constexpr std::array kFaultNames = {"hang",
                                           "hang in answer",
                                           "slow",
                                           "error",
                                           "late error",
                                           "short message",
                                           "corrupt byte",
                                           "reset",
                                           "refused",
                                           "go away",
                                           "lost",
                                           "garbage",
                                           "early headers",
                                           "extra message",
                                           "malformed",
                                           "connect refused",
                                           "connect hangs",
                                           "hung worker",
                                           "reordered",
                                           "late turn",
                                           "short read",
                                           "slow reader",
                                           "packet lost",
                                           "stalled",
                                           "cancelled",
                                           "resets rationed",
                                           "out of streams",
                                           "out of numbers",
                                           "slow sender",
                                           "rate changed",
                                           "paused",
                                           "large head",
                                           "errors in bulk",
                                           "dead address",
                                           "TLS handshake",
                                           "mixed kinds",
                                           "early beside",
                                           "late block",
                                           "gave way",
                                           "policy switched",
                                           "schedule began",
                                           "beside larger",
                                           "deadline below a guess",
                                           "beside many",
                                           "error details",
                                           "early hung",
                                           "hung client",
                                           "client gone",
                                           "tunnel pause",
                                           "tunnel stop",
                                           "tunnel lost",
                                           "tunnel pipeline",
                                           "tunnel stuck",
                                           "tunnel surprise",
                                           "tunnel stream"};
inline constexpr size_t kFaults = kFaultNames.size();
static_assert(kFaults == static_cast<size_t>(Fault::kTunnelStream) + 1);

// How often each fault occurred.
struct FaultCounts {
  std::array<uint64_t, kFaults> hits{};

  void Count(Fault fault, uint64_t times = 1) { hits[static_cast<size_t>(fault)] += times; }
  void Add(const FaultCounts& other) {
    for (size_t i = 0; i < kFaults; ++i) hits[i] += other.hits[i];
  }
};

// The only source of randomness in a world. It computes its own distributions, because the distributions of standard
// libraries differ.
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

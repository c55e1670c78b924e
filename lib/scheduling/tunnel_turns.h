#pragma once

#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "sluice/time_point.h"

namespace sluice {

// Decides for one byte tunnel when it needs a turn in the schedule, and when the turn ends. The protocol in the tunnel
// is unknown, so the end of a response is inferred from bytes and from time. There is one for each scheduled tunnel.
// Not thread-safe. Times must never decrease.
//
//   kQuiet     Nothing is expected. The window is open, because closing it would take bytes of the worker.
//   kWaiting   The tunnel has asked for a turn. Its response is held, since nobody reads it: at most one window of
//   bytes
//              comes, and they wait in the kernel.
//   kTurn      Bytes pass in both directions. The window is charged.
//   kHeld      The client does not read. The window is full, and nothing comes.
//
// If more comes than was expected (a worker that sends by itself, a response after a long silence), at most one window
// is uncharged: the tunnel passes it, reads no more, and asks.
class TunnelTurns {
 public:
  // A worker that has sent nothing for this long after a request holds no window for others any longer.
  static constexpr std::chrono::milliseconds kMostThinking{200};
  // A response that pauses for longer surprises each time. In a TLS handshake both sides compute for as long, and a
  // tunnel that waited so long after each response would keep its window from others.
  static constexpr std::chrono::milliseconds kMostPause{20};
  // Pieces of a quiet tunnel that are not larger are ordinary small packets, such as acknowledgements are.
  static constexpr int64_t kSmallPieceBytes = 128;

  enum class Phase { kQuiet, kWaiting, kTurn, kHeld };
  // The step that the owner must take after an event.
  enum class Step {
    kNothing,
    kAsk,  // Ask for a turn. If the tunnel has one, it ends: its window is passed on if the new turn begins at once.
    kEnd,  // End the turn. Nothing of it is on the way.
    kAbandon,  // End the turn. A window may be on the way.
  };

  // The client sends bytes. `wants_response`: false for bytes that seem to have no response. If one came nevertheless,
  // all bytes count from then on. Small pieces of a size that got no response before seem to have none, too, such as
  // HTTP/2's PING and WINDOW_UPDATE together in a record of TLS.
  Step OnRequest(TimePoint now, int64_t bytes, bool wants_response = true);
  // Bytes of the worker have come.
  struct Piece {
    int64_t bytes = 0;
    bool is_response = true;  // false for bytes that are known to be no response
    // Its last packet is not full, though the window had room: the worker had no more to send at that moment.
    bool ends = false;
  };
  // After `part_bytes` of one turn the tunnel asks for the next.
  Step OnResponse(TimePoint now, const Piece& piece, int64_t part_bytes);
  Step OnGranted(TimePoint now);  // the turn that the tunnel has asked for begins
  Step OnClientStuck(bool stuck);
  // Ends the turn if nothing came for too long. `silence`: how long a response may pause; an eighth of it after a piece
  // that ends. A tunnel whose responses have paused for longer waits for longer.
  Step OnTimer(TimePoint now, std::chrono::nanoseconds silence);
  // When to call OnTimer; TimePoint::max() if it is not needed.
  TimePoint Due(std::chrono::nanoseconds silence) const;

  Phase phase() const { return phase_; }
  bool passes_requests() const { return phase_ != Phase::kWaiting || !for_request_; }
  bool reads() const { return phase_ == Phase::kQuiet || phase_ == Phase::kTurn; }
  // How much of the current response has come. A response is expected to be as long again.
  int64_t response_bytes() const { return response_bytes_; }
  // How long the worker took until its last response began; 0 before the first.
  std::chrono::nanoseconds last_thinking() const { return last_thinking_; }
  bool answered() const { return answered_; }  // a response to the last request has begun
  bool given_up() const { return given_up_; }  // the last request got no response in its turn
  // How often bytes came that no turn had room for.
  int64_t surprises() const { return surprises_; }

 private:
  std::chrono::nanoseconds Patience(std::chrono::nanoseconds silence) const;
  Step Ask(bool for_request);
  void BeginExchange(TimePoint now);
  void OnAnswered(TimePoint now);
  void OnSurprise(TimePoint now, bool awaited);

  Phase phase_ = Phase::kQuiet;
  bool for_request_ = false;  // kWaiting: a request waits
  bool stuck_ = false;        // the client does not read
  bool answered_ = true;      // a response to the last request has begun
  bool ends_ = false;         // the last piece ended
  bool given_up_ = false;
  bool ignored_ = false;  // bytes passed that seemed to have no response
  // The sizes of small requests that got a response at any time, and in no turn. Size 0 is any other size. Otherwise a
  // piece that has no response would hold a window in vain each time, or the next request would pass without a turn.
  using Sizes = std::bitset<kSmallPieceBytes + 1>;
  Sizes answered_sizes_{1};
  Sizes unanswered_sizes_;
  Sizes announcing_sizes_;     // of small pieces of the worker that seemed to be a whole response, and more followed
  size_t request_size_ = 0;    // of the last request
  size_t ignored_size_ = 0;    // of the bytes that passed
  size_t whole_size_ = 0;      // of the response, if it is a small piece
  size_t announced_size_ = 0;  // of a small piece that came and did not count as the response
  bool believes_ = true;       // that `wants_response` is right
  TimePoint requested_;        // when the last request passed
  TimePoint last_;             // the last request or response in this turn
  int64_t turn_bytes_ = 0;
  int64_t response_bytes_ = 0;
  std::chrono::nanoseconds thinking_ = kMostThinking;  // the longest recent time until a response began
  std::chrono::nanoseconds last_thinking_{0};
  std::chrono::nanoseconds pause_{0};  // the longest recent time for which a response paused, if it was too long
  int64_t surprises_ = 0;
};

}  // namespace sluice

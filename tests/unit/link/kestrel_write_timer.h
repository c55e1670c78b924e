#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "sluice/time_point.h"

namespace sluice::testing {

// The write timer of one connection of Kestrel with its default limits (MinResponseDataRate), as in TimeoutControl.cs
// and Http2FrameWriter.cs of ASP.NET Core 10.0. All streams of the connection share it. A flush of any frame moves it,
// also of the acknowledgement of a SETTINGS. It runs out only while a write is blocked by a window. Not thread-safe.
class KestrelWriteTimer {
 public:
  static constexpr std::chrono::seconds kTick{1};  // Heartbeat.Interval

  explicit KestrelWriteTimer(TimePoint now) : last_tick_(now) {}

  // TimeoutControl.BytesWrittenToBuffer.
  void OnFlush(size_t bytes) {
    const auto at_least_rate = std::chrono::duration_cast<TimePoint::duration>(
        std::chrono::duration<double>(static_cast<double>(bytes) / kBytesPerSecond));
    const TimePoint single = last_tick_ + kTick + std::max<TimePoint::duration>(kGracePeriod, at_least_rate);
    runs_out_ = std::max(single, runs_out_ + at_least_rate);
  }
  // TimeoutControl.CheckForWriteDataRateTimeout. Returns whether Kestrel aborts the connection. Call it every kTick.
  bool Tick(TimePoint now, bool write_is_blocked) {
    last_tick_ = now;
    return write_is_blocked && now > runs_out_;
  }

 private:
  static constexpr double kBytesPerSecond = 240;
  static constexpr std::chrono::seconds kGracePeriod{5};

  TimePoint last_tick_;
  TimePoint runs_out_;
};

}  // namespace sluice::testing

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/link/scheduled_stream.h"

namespace sluice {

class ProxiedCall;

// The worker's side of a proxied call. It passes all events of the worker on to the call, and holds the call. There is
// one for each attempt of a call. Used on the link's thread only.
class WorkerStream final : public ScheduledStream {
 public:
  WorkerStream(LinkLoop& loop, Options options, std::shared_ptr<ProxiedCall> call)
      : ScheduledStream(loop, std::move(options)), call_(std::move(call)) {}

  // See ScheduledStream.
  using ScheduledStream::asked_bytes;
  using ScheduledStream::AskForMore;
  using ScheduledStream::messages;
  using ScheduledStream::open;
  using ScheduledStream::pending_message_bytes;
  using ScheduledStream::request_left;
  using ScheduledStream::SendData;
  using ScheduledStream::set_reset_error;

 private:
  Opening Begin(TimePoint now) override;
  bool MayBeginAgain() const override;
  void OnSent() override;
  void OnHeld(HeldFor held_for) override;
  bool TakeHeaders(HeaderList headers, bool end_stream) override;
  bool TakeData(absl::string_view bytes, bool end_stream) override;
  void OnRequestWritable() override;
  int64_t WantedBytes() override;
  void OnAsked() override;
  bool Conclude(StreamEnd end, const absl::Status& why) override;
  void OnEnded(absl::Status why) override;

  const std::shared_ptr<ProxiedCall> call_;
};

}  // namespace sluice

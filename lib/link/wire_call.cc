#include "lib/link/wire_call.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lib/grpc_wire/request.h"
#include "lib/link/link_loop.h"
#include "lib/link/worker.h"
#include "lib/tcp/tcp_report.h"

namespace sluice {
WireCall::WireCall(LinkLoop& loop, CallSpec spec, CallOwner& owner)
    : ScheduledStream(loop, {.worker = spec.worker,
                             .response_bytes = spec.response_bytes,
                             .many_messages = spec.server_streaming,
                             .may_idle = spec.may_idle,
                             .deadline = spec.deadline}),
      spec_(std::move(spec)),
      owner_(owner),
      claim_(spec_.memory, [this] { OnRoom(); }) {}

// Bytes that come with the request come unasked, and so does a response that the schedule may grant early.
bool WireCall::MayBegin(int64_t granted_bytes) {
  waits_to_begin_ = !claim_.Take(std::max(granted_bytes, EarlyBytes()));
  return !waits_to_begin_;
}

// A larger response comes early in part, and is claimed whole once its prefix is here. Rejected: to claim its part
// here. Requests for large messages would wait until one of these is merged, and their workers would think one by one.
int64_t WireCall::EarlyBytes() {
  if (spec_.may_idle || spec_.memory == nullptr) return 0;
  const int64_t bytes = std::max(spec_.response_bytes, CallbackMemory::kMinMessageBytes);
  return loop().schedule().FitsOnePart(bytes) ? bytes : 0;
}

ScheduledStream::Opening WireCall::Begin(TimePoint now) {
  reader_.emplace(ResponseReader::Options{.max_message_bytes = spec_.max_message_bytes,
                                          .server_streaming = spec_.server_streaming,
                                          .buffers = &loop().message_buffers()});
  absl::Duration timeout = absl::InfiniteDuration();
  if (spec_.deadline != TimePoint::max()) timeout = absl::FromChrono(spec_.deadline - now);
  return {.head = ToHeaders({.path = spec_.path,
                             .authority = spec_.worker->authority(),
                             .tls = spec_.worker->tls() != nullptr,
                             .timeout = timeout,
                             .gzip = spec_.gzip_request,
                             .metadata = spec_.metadata.get(),
                             .more_metadata = spec_.more_metadata.get()}),
          .data = *spec_.request};
}

void WireCall::OnSent() {
  owner_.OnSent(spec_.tag);
}

void WireCall::OnReady(std::chrono::nanoseconds ready_after) {
  owner_.OnReady(spec_.tag, ready_after);
}

void WireCall::OnHeld(HeldFor held_for) {
  claim_.OnHeld(held_for != HeldFor::kNothing);
  owner_.OnHeld(spec_.tag, held_for);
}

bool WireCall::TakeHeaders(HeaderList headers, bool end_stream) {
  reader_->OnHeaders(std::move(headers), end_stream);
  return !reader_->failed();
}

bool WireCall::TakeData(absl::string_view bytes, bool end_stream) {
  claim_.OnProgress(bytes.size());
  reader_->OnData(bytes, end_stream);
  return !reader_->failed();
}

// The owner holds what it has been given. A unary response waits for the end of its call, which a worker may keep back.
void WireCall::HandOut() {
  if (!reader_->has_message()) return;
  WireMessage message;
  while (wanted() && reader_->TakeMessage(message)) owner_.OnMessage(spec_.tag, std::move(message));
  if (!spec_.server_streaming || over()) return;
  claim_.Release();
  AskForMore();
}

// Otherwise messages that fit the room for a prefix come without a claim.
bool WireCall::MayComeNext() {
  return !spec_.server_streaming || claim_.Take(CallbackMemory::kMinMessageBytes);
}

// A message is asked for whole: parts of many would fill the memory, and none could be merged. The next one is asked
// for when those before it are handed out.
int64_t WireCall::WantedBytes() {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  if (spec_.server_streaming && reader_->has_message()) return 0;
  return claim_.Take(pending_message_bytes()) ? kAll : 0;
}

void WireCall::OnRoom() {
  if (std::exchange(waits_to_begin_, false)) return Resume();
  LetNextCome();
  AskForMore();
}

bool WireCall::Conclude(StreamEnd end, const absl::Status& why) {
  end_ = reader_->End(end);
  if (!why.ok()) {
    end_.status = why;
  } else if (absl::IsCancelled(end_.status) && late()) {
    // Servers cancel calls that are late, which this side may not have seen yet.
    end_.status = absl::DeadlineExceededError("the deadline passed");
  }
  for (const auto& [key, value] : end_.trailing_metadata) {
    if (key == kTcpReportKey) CountTcpReport(value);
  }
  return end_.status.ok();
}

void WireCall::OnEnded(absl::Status why) {
  if (!why.ok()) end_.status = std::move(why);
  owner_.OnEnded(spec_.tag, std::move(end_));
  claim_.Release();
  reader_.reset();  // the stream may stay open until it may be reset
}

}  // namespace sluice

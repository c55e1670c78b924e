#include "lib/link/wire_call.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sluice/plan.h"

#include "lib/grpc_wire/request.h"
#include "lib/link/link_loop.h"
#include "lib/link/worker.h"
#include "lib/tcp/tcp_report.h"

namespace sluice {
namespace {

// The part of a response that may come before its claim, with unscheduled: as much as from most gRPC clients. A larger
// window would let more arrive beyond the bound of the memory, and a smaller one would delay responses.
constexpr int64_t kUnaskedBytes = 64 << 10;

}  // namespace

ScheduledStream& WireCall::Make(LinkLoop& loop, CallSpec spec, CallOwner& owner) {
  ScheduledStream::Options options{.worker = spec.worker,
                                   .response_bytes = spec.response_bytes,
                                   .many_messages = spec.server_streaming,
                                   .may_idle = spec.may_idle,
                                   .deadline = spec.deadline,
                                   .request_bytes = static_cast<int64_t>(spec.request->size())};
  const auto call = std::make_shared<WireCall>(loop, std::move(spec), owner);
  auto stream = std::make_unique<ScheduledStream>(loop, std::move(options), call);
  call->stream_ = stream.get();
  return loop.Take(std::move(stream));
}

WireCall::WireCall(LinkLoop& loop, CallSpec spec, CallOwner& owner)
    : loop_(loop), spec_(std::move(spec)), owner_(owner), claim_(spec_.memory, [this] { OnRoom(); }) {}

// Bytes that come with the request come without a further grant. So does a response that the schedule may grant early.
std::optional<StreamUser::Opening> WireCall::BeginRequest(TimePoint now, int64_t granted_bytes) {
  waits_to_begin_ = !claim_.Take(BytesWithRequest(granted_bytes));
  if (waits_to_begin_) return std::nullopt;
  reader_.emplace(ResponseReader::Options{.max_message_bytes = spec_.max_message_bytes,
                                          .server_streaming = spec_.server_streaming,
                                          .buffers = &loop_.message_buffers()});
  absl::Duration timeout = absl::InfiniteDuration();
  if (spec_.deadline != TimePoint::max()) timeout = absl::FromChrono(spec_.deadline - now);
  return Opening{.head = ToHeaders({.path = spec_.path,
                                    .authority = spec_.worker->authority(),
                                    .tls = spec_.worker->tls() != nullptr,
                                    .timeout = timeout,
                                    .gzip = spec_.gzip_request,
                                    .metadata = spec_.metadata.get(),
                                    .more_metadata = spec_.more_metadata.get()}),
                 .data = *spec_.request,
                 .unasked_bytes = spec_.memory == nullptr ? 0 : kUnaskedBytes};
}

int64_t WireCall::BytesWithRequest(int64_t granted_bytes) {
  if (granted_bytes < kMaxResponseBytes) return std::max(granted_bytes, EarlyBytes());
  return spec_.may_idle ? 0 : std::clamp(spec_.response_bytes, CallbackMemory::kMinMessageBytes, kUnaskedBytes);
}

// A larger response comes early in part, and is claimed whole once its prefix has arrived. Rejected: to claim its part
// here. Requests for large messages would wait until one of these is merged, and their workers would think one by one.
int64_t WireCall::EarlyBytes() {
  if (spec_.may_idle || spec_.memory == nullptr) return 0;
  const int64_t bytes = std::max(spec_.response_bytes, CallbackMemory::kMinMessageBytes);
  return loop_.schedule().FitsOnePart(bytes) ? bytes : 0;
}

void WireCall::OnRequestSent() {
  owner_.OnSent(spec_.tag);
}

void WireCall::OnResponseReady(std::chrono::nanoseconds ready_after) {
  owner_.OnReady(spec_.tag, ready_after);
}

void WireCall::OnResponseHeld(HeldFor held_for) {
  claim_.OnHeld(held_for != HeldFor::kNothing);
  owner_.OnHeld(spec_.tag, held_for);
}

bool WireCall::OnResponseHeaders(HeaderList headers, bool end_stream) {
  reader_->OnHeaders(std::move(headers), end_stream);
  return !reader_->failed();
}

bool WireCall::OnResponseData(absl::string_view bytes, bool end_stream) {
  claim_.OnProgress(bytes.size());
  reader_->OnData(bytes, end_stream);
  return !reader_->failed();
}

// Hands out the messages; the owner then holds them. A unary response waits for the end of its call, which a worker may
// delay.
void WireCall::OnResponseCounted() {
  if (!reader_->has_message()) return;
  WireMessage message;
  while (!stream_->given_up() && reader_->TakeMessage(message)) owner_.OnMessage(spec_.tag, std::move(message));
  if (!spec_.server_streaming || stream_->over()) return;
  claim_.Release();
  if (stream_->response().pending_message_bytes() > 0) stream_->AskForMore();
}

// Without this, messages that fit the room for a prefix would come without a claim.
bool WireCall::WantsNextMessage() {
  return !spec_.server_streaming || claim_.Take(CallbackMemory::kMinMessageBytes);
}

// A message is requested whole: parts of many messages would fill the memory, and none could be merged. The next one is
// requested when those before it have been handed out.
int64_t WireCall::WantedBytes() {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  if (spec_.server_streaming && reader_->has_message()) return 0;
  return claim_.Take(stream_->response().pending_message_bytes()) ? kAll : 0;
}

void WireCall::OnRoom() {
  if (std::exchange(waits_to_begin_, false)) return loop_.Resume(*stream_);
  stream_->AskForMore();
}

bool WireCall::OnStreamOver(const StreamEnd* end, const absl::Status& why) {
  if (end != nullptr) {
    Conclude(*end, why);
  } else {
    end_.status = why;
  }
  const bool ok = end_.status.ok();
  owner_.OnEnded(spec_.tag, std::move(end_));
  claim_.Release();
  reader_.reset();  // the stream may stay open until it may be reset
  return ok;
}

void WireCall::Conclude(StreamEnd end, const absl::Status& why) {
  end_ = reader_->End(end);
  if (!why.ok()) {
    end_.status = why;
  } else if (absl::IsCancelled(end_.status) && loop_.now() >= spec_.deadline) {
    // Servers cancel calls that are late, possibly before this side has noticed.
    end_.status = absl::DeadlineExceededError("the deadline passed");
  }
  for (const auto& [key, value] : end_.trailing_metadata) {
    if (key == kTcpReportKey) spec_.worker->OnTcpReport(value);
  }
}

}  // namespace sluice

#include "lib/proxy/worker_stream.h"

#include "lib/proxy/proxied_call.h"
#include "lib/tcp/tcp_report.h"

namespace sluice {

ScheduledStream::Opening WorkerStream::Begin(TimePoint now) {
  return call_->BeginRequest(now);
}

bool WorkerStream::MayBeginAgain() const {
  return call_->may_begin_again();
}

void WorkerStream::OnSent() {
  call_->OnRequestSent();
}

void WorkerStream::OnHeld(HeldFor held_for) {
  call_->OnResponseHeld(held_for);
}

bool WorkerStream::TakeHeaders(HeaderList headers, bool end_stream) {
  for (const HeaderField& field : headers) {
    if (end_stream && field.name == kTcpReportKey) CountTcpReport(field.value);
  }
  return call_->TakeResponseHeaders(headers, end_stream);
}

bool WorkerStream::TakeData(absl::string_view bytes, bool end_stream) {
  return call_->TakeResponseData(bytes, end_stream);
}

void WorkerStream::OnRequestWritable() {
  call_->OnRequestTaken();
}

int64_t WorkerStream::WantedBytes() {
  return call_->WantedBytes();
}

void WorkerStream::OnAsked() {
  call_->OnAnswerAsked();
}

bool WorkerStream::Conclude(StreamEnd end, const absl::Status& why) {
  return call_->Conclude(end, why);
}

void WorkerStream::OnEnded(absl::Status why) {
  call_->OnWorkerEnded(why);
}

}  // namespace sluice

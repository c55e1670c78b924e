#include "lib/http2/session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/http2/session_impl.h"

namespace sluice {
namespace {

absl::Status CheckRange(absl::string_view field, uint32_t value, uint32_t least, uint32_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("Http2Session::Options::", field, " is ", value, ", and must be ", least, " to ", most));
}

// RFC 9113, sections 6.5.2 and 6.9.1.
absl::Status Check(const Http2Session::Options& options) {
  constexpr uint32_t kMaxWindow = (1u << 31) - 1;
  constexpr uint32_t kMaxStream = (1u << 31) - 1;
  absl::Status status = CheckRange("stream_window_bytes", options.stream_window_bytes, 0, kMaxWindow);
  status.Update(CheckRange("connection_window_bytes", options.connection_window_bytes, 65535, kMaxWindow));
  status.Update(CheckRange("max_frame_bytes", options.max_frame_bytes, 16384, (1u << 24) - 1));
  status.Update(CheckRange("first_stream", options.first_stream, 1, kMaxStream));
  if (options.first_stream % 2 == 0) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("Http2Session::Options::first_stream is ", options.first_stream, ", and must be odd")));
  }
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Http2Session>> Http2Session::Create(const Options& options, SessionEvents& events) {
  if (absl::Status status = Check(options); !status.ok()) return status;
  auto impl = std::make_unique<Impl>(options, events);
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<Http2Session>(new Http2Session(std::move(impl)));
}

Http2Session::Http2Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Http2Session::~Http2Session() = default;

absl::Status Http2Session::Receive(absl::string_view bytes) {
  return impl_->Receive(bytes);
}
void Http2Session::Output(std::string& out) {
  impl_->Output(out);
}
bool Http2Session::wants_write() const {
  return impl_->wants_write();
}
size_t Http2Session::open_slots() const {
  return impl_->open_slots();
}
bool Http2Session::going_away() const {
  return impl_->going_away();
}
bool Http2Session::out_of_streams() const {
  return impl_->out_of_streams();
}
std::optional<Http2Error> Http2Session::goaway_error() const {
  return impl_->goaway_error();
}
size_t Http2Session::streams() const {
  return impl_->streams();
}
absl::StatusOr<int32_t> Http2Session::Open(const HeaderList& headers, std::string body, bool end_stream,
                                           uint32_t granted_bytes, StreamEvents& events) {
  return impl_->Open(headers, std::move(body), end_stream, granted_bytes, events);
}
void Http2Session::SendHeaders(int32_t stream, const HeaderList& headers, bool end_stream) {
  impl_->SendHeaders(stream, headers, end_stream);
}
absl::StatusOr<size_t> Http2Session::SendData(int32_t stream, std::string bytes, bool end_stream) {
  return impl_->SendData(stream, std::move(bytes), end_stream);
}
size_t Http2Session::unsent_bytes(int32_t stream) const {
  return impl_->unsent_bytes(stream);
}

size_t Http2Session::unsent_header_bytes(int32_t stream) const {
  return impl_->unsent_header_bytes(stream);
}
void Http2Session::Grant(int32_t stream, uint32_t bytes) {
  impl_->Grant(stream, bytes);
}
bool Http2Session::on_wire(int32_t stream) const {
  return impl_->on_wire(stream);
}

void Http2Session::Reset(int32_t stream, Http2Error error) {
  impl_->Reset(stream, error);
}
void Http2Session::Ping() {
  impl_->Ping();
}
void Http2Session::GoAway(Http2Error error) {
  impl_->GoAway(error);
}
void Http2Session::AnnounceGoAway() {
  impl_->AnnounceGoAway();
}
void Http2Session::Lose() {
  impl_->Lose();
}

}  // namespace sluice

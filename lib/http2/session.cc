#include "lib/http2/session.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/http2/http2_stream.h"
#include "lib/http2/session_callbacks.h"

namespace sluice {
namespace {

struct CallbacksDeleter {
  void operator()(nghttp2_session_callbacks* callbacks) const { nghttp2_session_callbacks_del(callbacks); }
};
struct OptionDeleter {
  void operator()(nghttp2_option* option) const { nghttp2_option_del(option); }
};

// Bound of the other side's PINGs and SETTINGS whose acknowledgements are not serialised yet. Each Receive serialises
// them.
constexpr size_t kMaxUnsentAcks = 1000;
constexpr size_t kMaxSettings = 32;  // in one frame; RFC 9113 and its extensions define nine

// HPACK's table for sent headers. It holds the headers that all requests of a client share. A byte of the table takes
// three bytes of the heap, and an idle connection keeps them.
constexpr size_t kSentHeaderTableBytes = 1024;

uint32_t ErrorCode(Http2Error error) {
  return static_cast<uint32_t>(error);
}

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

absl::Status NoMemory() {
  return absl::ResourceExhaustedError("HTTP/2 session: out of memory");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Http2Session>> Http2Session::Create(const Options& options, SessionEvents& events) {
  if (absl::Status status = Check(options); !status.ok()) return status;
  std::unique_ptr<Http2Session> session(new Http2Session(options, events));
  if (absl::Status status = session->Start(); !status.ok()) return status;
  return session;
}

Http2Session::Http2Session(const Options& options, SessionEvents& events) : options_(options), events_(events) {}

Http2Session::~Http2Session() {
  nghttp2_session_del(nghttp2_);
}

absl::Status Http2Session::Start() {
  nghttp2_session_callbacks* new_callbacks = nullptr;
  if (nghttp2_session_callbacks_new(&new_callbacks) != 0) return NoMemory();
  const std::unique_ptr<nghttp2_session_callbacks, CallbacksDeleter> callbacks(new_callbacks);
  Callbacks::Register(callbacks.get());

  nghttp2_option* new_option = nullptr;
  if (nghttp2_option_new(&new_option) != 0) return NoMemory();
  const std::unique_ptr<nghttp2_option, OptionDeleter> option(new_option);
  nghttp2_option_set_no_auto_window_update(option.get(), 1);
  nghttp2_option_set_no_closed_streams(option.get(), 1);
  nghttp2_option_set_max_deflate_dynamic_table_size(option.get(), kSentHeaderTableBytes);
  nghttp2_option_set_max_reserved_remote_streams(option.get(), 0);
  nghttp2_option_set_max_outbound_ack(option.get(), kMaxUnsentAcks);
  nghttp2_option_set_stream_reset_rate_limit(option.get(), options_.reset_burst, options_.resets_per_second);
  nghttp2_option_set_max_settings(option.get(), kMaxSettings);
  // gRPC's servers leave a space at the end of a grpc-message as it is. nghttp2 would reset the stream for it.
  nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option.get(), 1);

  const bool client = options_.side == Side::kClient;
  const int made = client ? nghttp2_session_client_new2(&nghttp2_, callbacks.get(), this, option.get())
                          : nghttp2_session_server_new2(&nghttp2_, callbacks.get(), this, option.get());
  if (made != 0) return NoMemory();
  if (client) nghttp2_session_set_next_stream_id(nghttp2_, static_cast<int32_t>(options_.first_stream));

  std::vector<nghttp2_settings_entry> settings = {
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, options_.stream_window_bytes},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, options_.max_frame_bytes},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, options_.max_header_list_bytes}};
  if (client) {
    settings.push_back({NGHTTP2_SETTINGS_ENABLE_PUSH, 0});
  } else {
    settings.push_back({NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, options_.max_concurrent_streams});
    // Use no priority tree: it would keep idle and closed streams (RFC 9218, section 2.1).
    settings.push_back({NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1});
  }
  if (nghttp2_submit_settings(nghttp2_, NGHTTP2_FLAG_NONE, settings.data(), settings.size()) != 0 ||
      nghttp2_session_set_local_window_size(nghttp2_, NGHTTP2_FLAG_NONE, 0,
                                            static_cast<int32_t>(options_.connection_window_bytes)) != 0) {
    return NoMemory();
  }
  max_streams_ = nghttp2_session_get_remote_settings(nghttp2_, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
  return absl::OkStatus();
}

absl::Status Http2Session::Receive(absl::string_view bytes) {
  if (lost_) return absl::UnavailableError("HTTP/2 session: the connection is lost");
  if (!error_.ok() || bytes.empty()) return error_;
  if (options_.forgive_idle_resets) bytes = idle_resets_.Pass(bytes);
  in_nghttp2_ = true;
  const ssize_t taken =
      nghttp2_session_mem_recv(nghttp2_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  in_nghttp2_ = false;
  if (lost_) return absl::OkStatus();
  if (taken < 0) {
    // nghttp2 stops without a GOAWAY, so send one.
    const bool flood = taken == NGHTTP2_ERR_FLOODED || taken == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS;
    nghttp2_session_terminate_session(nghttp2_, flood ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_PROTOCOL_ERROR);
    Fail(absl::InternalError(absl::StrCat("HTTP/2 connection: ", nghttp2_strerror(static_cast<int>(taken)))));
  }
  // nghttp2 reports other errors only to the other side, by a GOAWAY. Serialise it here, to see it in OnFrameSend.
  Serialise(output_);
  const bool at_end = going_away_ && streams_.empty();
  if (error_.ok() && !lost_ && !at_end && !nghttp2_session_want_read(nghttp2_)) {
    Fail(absl::InternalError(absl::StrCat("HTTP/2 connection: ", goaway_text_)));
  }
  return error_;
}

void Http2Session::Fail(absl::Status error) {
  if (error_.ok()) error_ = std::move(error);
}

size_t Http2Session::open_slots() const {
  if (options_.side == Side::kServer || going_away()) return 0;
  const size_t slots = max_streams_ > streams_.size() ? max_streams_ - streams_.size() : 0;
  return std::min(unused_ids(), slots);
}

size_t Http2Session::unused_ids() const {
  constexpr uint32_t kMaxId = std::numeric_limits<int32_t>::max();
  const uint32_t next_id = nghttp2_session_get_next_stream_id(nghttp2_);
  return next_id > kMaxId ? 0 : (kMaxId - next_id) / 2 + 1;
}

Http2Stream* Http2Session::Find(int32_t id) {
  const auto it = streams_.find(id);
  return it == streams_.end() ? nullptr : it->second.get();
}

void Http2Session::Grant(int32_t id, uint32_t bytes) {
  Http2Stream* stream = Find(id);
  if (stream == nullptr || stream->was_reset || stream->received_end || bytes == 0) return;
  if (stream->grant_bytes == 0) granted_.push_back(id);
  stream->grant_bytes += bytes;
}

void Http2Session::Reset(int32_t id, Http2Error error) {
  Http2Stream* stream = Find(id);
  if (stream == nullptr || stream->was_reset) return;
  stream->was_reset = true;
  stream->unsent.Remove(stream->unsent.size());  // at once: it may be long until an Output has the reset
  nghttp2_submit_rst_stream(nghttp2_, NGHTTP2_FLAG_NONE, id, ErrorCode(error));
}

void Http2Session::Ping() {
  nghttp2_submit_ping(nghttp2_, NGHTTP2_FLAG_NONE, nullptr);
}

void Http2Session::GoAway(Http2Error error) {
  going_away_ = true;
  nghttp2_submit_goaway(nghttp2_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(nghttp2_),
                        ErrorCode(error), nullptr, 0);
}

void Http2Session::AnnounceGoAway() {
  nghttp2_submit_shutdown_notice(nghttp2_);
}

size_t Http2Session::unsent_bytes(int32_t id) const {
  const auto it = streams_.find(id);
  return it == streams_.end() ? 0 : it->second->unsent.size();
}

size_t Http2Session::unsent_header_bytes(int32_t id) const {
  const auto it = streams_.find(id);
  return it == streams_.end() ? 0 : it->second->unsent_header_bytes;
}

bool Http2Session::on_wire(int32_t id) const {
  const auto it = streams_.find(id);
  return it != streams_.end() && it->second->opened;
}

void Http2Session::Lose() {
  lost_ = true;
  auto streams = std::exchange(streams_, {});
  // Close the streams in the order of their numbers: a run in the order of a hash map could not be replayed.
  std::vector<int32_t> ids;
  for (const auto& [id, stream] : streams) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const int32_t id : ids) {
    StreamEnd end{StreamEnd::Kind::kLost, Http2Error::kNoError};
    if (!HasLeft(*streams[id])) end = {StreamEnd::Kind::kUnhandled, Http2Error::kRefusedStream};
    streams[id]->events.OnClosed(end);
  }
}

// Whether an Output has returned the HEADERS of the stream. The session cannot see whether its owner wrote them.
bool Http2Session::HasLeft(const Http2Stream& stream) const {
  return options_.side == Side::kServer || (stream.opened && outputs_ > stream.output_after);
}

StreamEnd Http2Session::EndOf(const Http2Stream& stream, uint32_t error_code) const {
  const auto error = static_cast<Http2Error>(error_code);
  if (stream.was_reset) return {StreamEnd::Kind::kReset, error, true, stream.exceeded_header_list_bytes};
  // The server refused the request by RST_STREAM, or by a GOAWAY whose last stream is lower, or a GOAWAY came before
  // the HEADERS left. Ignore such a code after the server has responded: it did process the request.
  if (options_.side == Side::kClient && error == Http2Error::kRefusedStream && !stream.received_any) {
    return {StreamEnd::Kind::kUnhandled, error};
  }
  if (error == Http2Error::kNoError && !stream.received_reset) return {StreamEnd::Kind::kComplete, error};
  return {StreamEnd::Kind::kReset, error, !stream.received_reset};
}

void Http2Session::Close(int32_t id, StreamEnd end) {
  const auto it = streams_.find(id);
  const std::unique_ptr<Http2Stream> stream = std::move(it->second);
  streams_.erase(it);
  stream->events.OnClosed(end);
  if (options_.side == Side::kClient) events_.OnSlots();
}

}  // namespace sluice

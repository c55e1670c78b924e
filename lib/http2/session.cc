#include "lib/http2/session.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include <nghttp2/nghttp2.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "lib/http2/http2_stream.h"

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

// Returns null without memory.
nghttp2_session* MakeNghttp2(const Http2Session::Options& options, const nghttp2_session_callbacks& callbacks,
                             Http2Session* session) {
  nghttp2_option* new_option = nullptr;
  if (nghttp2_option_new(&new_option) != 0) return nullptr;
  const std::unique_ptr<nghttp2_option, OptionDeleter> option(new_option);
  nghttp2_option_set_no_auto_window_update(option.get(), 1);
  nghttp2_option_set_no_closed_streams(option.get(), 1);
  nghttp2_option_set_max_deflate_dynamic_table_size(option.get(), kSentHeaderTableBytes);
  nghttp2_option_set_max_reserved_remote_streams(option.get(), 0);
  nghttp2_option_set_max_outbound_ack(option.get(), kMaxUnsentAcks);
  nghttp2_option_set_stream_reset_rate_limit(option.get(), options.reset_burst, options.resets_per_second);
  nghttp2_option_set_max_settings(option.get(), kMaxSettings);
  // gRPC's servers leave a space at the end of a grpc-message as it is. nghttp2 would reset the stream for it.
  nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option.get(), 1);
  // RequestRules checks requests.
  nghttp2_option_set_no_http_messaging(option.get(), options.side == Http2Session::Side::kServer ? 1 : 0);

  nghttp2_session* made = nullptr;
  if (options.side == Http2Session::Side::kServer) {
    return nghttp2_session_server_new2(&made, &callbacks, session, option.get()) == 0 ? made : nullptr;
  }
  if (nghttp2_session_client_new2(&made, &callbacks, session, option.get()) != 0) return nullptr;
  nghttp2_session_set_next_stream_id(made, static_cast<int32_t>(options.first_stream));
  return made;
}

// Returns false without memory.
bool SubmitSettings(nghttp2_session* nghttp2, const Http2Session::Options& options) {
  std::vector<nghttp2_settings_entry> settings = {
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, options.stream_window_bytes},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, options.max_frame_bytes},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, options.max_header_list_bytes}};
  if (options.side == Http2Session::Side::kClient) {
    settings.push_back({NGHTTP2_SETTINGS_ENABLE_PUSH, 0});
  } else {
    settings.push_back({NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams});
    // Use no priority tree: it would keep idle and closed streams (RFC 9218, section 2.1).
    settings.push_back({NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1});
  }
  return nghttp2_submit_settings(nghttp2, NGHTTP2_FLAG_NONE, settings.data(), settings.size()) == 0 &&
         nghttp2_session_set_local_window_size(nghttp2, NGHTTP2_FLAG_NONE, 0,
                                               static_cast<int32_t>(options.connection_window_bytes)) == 0;
}

// Whether a header list of this size, as HTTP/2 counts it, may be sent.
absl::Status CheckSentHeaders(nghttp2_session* nghttp2, size_t bytes) {
  const size_t theirs = nghttp2_session_get_remote_settings(nghttp2, NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE);
  const size_t bound = std::min<size_t>(theirs, Http2Session::kMaxSentHeaderListBytes);
  if (bytes <= bound) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the header list has ", bytes,
                                                 " bytes as HTTP/2 counts them, and the ",
                                                 bound == theirs ? "other side" : "session", " takes at most ", bound));
}

constexpr size_t kFrameHeaderBytes = 9;  // RFC 9113, section 4.1
constexpr size_t kTypicalFields = 12;    // a gRPC call has as many
constexpr absl::string_view kWrongLength = "its body does not have the length of its content-length";

absl::string_view View(const uint8_t* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

bool EndsStream(const nghttp2_frame& frame) {
  return (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
}

// The priority in the headers of a request (RFC 9218, section 5); null if there is none. nghttp2 reads it only together
// with its own checks of messages. Ignores parameters that are not valid.
std::optional<nghttp2_extpri> PriorityIn(const HeaderList& headers) {
  std::optional<nghttp2_extpri> priority;
  for (const HeaderField& field : headers) {
    if (field.name != "priority") continue;
    if (!priority.has_value()) priority = {.urgency = NGHTTP2_EXTPRI_DEFAULT_URGENCY, .inc = 0};
    for (absl::string_view item : absl::StrSplit(field.value, ',')) {
      item = absl::StripAsciiWhitespace(item.substr(0, item.find(';')));
      if (item == "i" || item == "i=?1") priority->inc = 1;
      if (item == "i=?0") priority->inc = 0;
      if (item.size() != 3 || !absl::ConsumePrefix(&item, "u=") || item[0] < '0' || item[0] > '7') continue;
      priority->urgency = item[0] - '0';
    }
  }
  return priority;
}

// A header that is not valid. The value of most headers may be a secret.
std::string Describe(absl::string_view name, absl::string_view value) {
  constexpr size_t kMaxShown = 100;
  std::string text = absl::StrCat("HTTP/2 does not allow the header ", absl::CHexEscape(name.substr(0, kMaxShown)));
  if (name == ":authority") absl::StrAppend(&text, " \"", absl::CHexEscape(value.substr(0, kMaxShown)), "\"");
  return text;
}

// Returns true for 1xx. ":status" is the only pseudo-header of a response, so it comes first.
bool IsInterim(const HeaderList& headers) {
  return !headers.empty() && headers.front().name == ":status" && headers.front().value.front() == '1';
}

}  // namespace

// The functions that nghttp2 calls while it parses and serialises. After a call of StreamEvents or SessionEvents they
// touch nothing of a stream, since that call may have called Lose.
struct Http2Session::Callbacks {
  static void Register(nghttp2_session_callbacks* callbacks);

  // If an event has called Lose, nghttp2 gives up the rest of the input.
  static int Done(const Http2Session& session) { return session.lost_ ? NGHTTP2_ERR_CALLBACK_FAILURE : 0; }
  // Returns null if the stream has no receiver of its events.
  static Http2Stream* StreamOf(const Http2Session& session, int32_t id);

  static int OnBeginHeaders(nghttp2_session*, const nghttp2_frame* frame, void* user_data);
  static int OnHeader(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_bytes,
                      const uint8_t* value, size_t value_bytes, uint8_t flags, void* user_data);
  static int OnDataChunk(nghttp2_session*, uint8_t flags, int32_t id, const uint8_t* data, size_t bytes,
                         void* user_data);
  static int OnFrame(nghttp2_session*, const nghttp2_frame* frame, void* user_data);
  static int OnStreamClose(nghttp2_session*, int32_t id, uint32_t error_code, void* user_data);
  static int BeforeFrameSend(nghttp2_session*, const nghttp2_frame* frame, void* user_data);
  static int OnFrameSend(nghttp2_session*, const nghttp2_frame* frame, void* user_data);
  static ssize_t ReadData(nghttp2_session*, int32_t id, uint8_t* buffer, size_t bytes, uint32_t* flags,
                          nghttp2_data_source* source, void* user_data);
  static int SendDataFrame(nghttp2_session*, nghttp2_frame* frame, const uint8_t* frame_header, size_t bytes,
                           nghttp2_data_source* source, void* user_data);

 private:
  // Resets a request that breaks RequestRules.
  static int RefuseRequest(Http2Session& session, int32_t id, absl::string_view why);
  static int OnHeaderBlock(Http2Session& session, const nghttp2_frame& frame);
};

// --- The connection.

absl::StatusOr<std::unique_ptr<Http2Session>> Http2Session::Create(const Options& options, SessionEvents& events) {
  if (absl::Status status = Check(options); !status.ok()) return status;
  std::unique_ptr<Http2Session> session(new Http2Session(options, events));
  nghttp2_session_callbacks* new_callbacks = nullptr;
  if (nghttp2_session_callbacks_new(&new_callbacks) != 0) return NoMemory();
  const std::unique_ptr<nghttp2_session_callbacks, CallbacksDeleter> callbacks(new_callbacks);
  Callbacks::Register(callbacks.get());
  session->nghttp2_ = MakeNghttp2(options, *callbacks, session.get());
  if (session->nghttp2_ == nullptr || !SubmitSettings(session->nghttp2_, options)) return NoMemory();
  session->max_streams_ =
      nghttp2_session_get_remote_settings(session->nghttp2_, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
  return session;
}

Http2Session::Http2Session(const Options& options, SessionEvents& events) : options_(options), events_(events) {}

Http2Session::~Http2Session() {
  nghttp2_session_del(nghttp2_);
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
    error_.Update(absl::InternalError(absl::StrCat("HTTP/2 connection: ", nghttp2_strerror(static_cast<int>(taken)))));
  }
  // nghttp2 reports other errors only to the other side, by a GOAWAY. Serialise it here, to see it in OnFrameSend.
  Serialise(output_);
  const bool at_end = going_away_ && streams_.empty();
  if (error_.ok() && !lost_ && !at_end && !nghttp2_session_want_read(nghttp2_)) {
    error_.Update(absl::InternalError(absl::StrCat("HTTP/2 connection: ", goaway_text_)));
  }
  if (!lost_ && std::exchange(told_partial_bytes_, header_list_bytes_) != header_list_bytes_) {
    events_.OnPartialHead(header_list_bytes_);
  }
  return error_;
}

void Http2Session::Send(Probe probe) {
  if (probe == Probe::kPing) {
    nghttp2_submit_ping(nghttp2_, NGHTTP2_FLAG_NONE, nullptr);
  } else if (!std::exchange(settings_unacknowledged_, true)) {
    nghttp2_submit_settings(nghttp2_, NGHTTP2_FLAG_NONE, nullptr, 0);
  }
}

void Http2Session::GoAway(Http2Error error) {
  going_away_ = true;
  nghttp2_submit_goaway(nghttp2_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(nghttp2_),
                        ErrorCode(error), nullptr, 0);
}

void Http2Session::AnnounceGoAway() {
  nghttp2_submit_shutdown_notice(nghttp2_);
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

void Http2Session::Lose(absl::string_view why) {
  lost_ = true;
  auto streams = std::exchange(streams_, {});
  // Close the streams in the order of their numbers: a run in the order of a hash map could not be replayed.
  std::vector<int32_t> ids;
  for (const auto& [id, stream] : streams) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const int32_t id : ids) {
    StreamEnd end{.kind = StreamEnd::Kind::kLost, .why = std::string(why)};
    // Whether an Output has returned the HEADERS. The session cannot see whether its owner wrote them.
    const bool has_left = streams[id]->opened && outputs_ > streams[id]->output_after;
    if (options_.side == Side::kClient && !has_left) end = {StreamEnd::Kind::kUnhandled, Http2Error::kRefusedStream};
    streams[id]->events.OnClosed(std::move(end));
  }
}

// --- Its streams.

Http2Stream* Http2Session::Find(int32_t id) {
  const auto it = streams_.find(id);
  return it == streams_.end() ? nullptr : it->second.get();
}

absl::StatusOr<int32_t> Http2Session::Open(const HeaderList& headers, std::string body, bool end_stream,
                                           uint32_t granted_bytes, StreamEvents& events) {
  if (open_slots() == 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no stream can be opened: ", streams_.size(),
                                                     " are open, the other side allows ", max_streams_,
                                                     going_away() ? ", and the connection is going away" : ""));
  }
  if (absl::Status status = CheckSentHeaders(nghttp2_, HeaderListBytes(headers)); !status.ok()) return status;
  auto stream = std::make_unique<Http2Stream>(events);
  if (const int error = stream->SubmitOpening(nghttp2_, headers, end_stream && body.empty()); error != 0) {
    return absl::InternalError(absl::StrCat("nghttp2_submit_headers: ", nghttp2_strerror(error)));
  }
  const int32_t id = stream->id;
  stream->sends_data = !body.empty();
  stream->unsent.Append(std::move(body));
  stream->sends_end = end_stream;
  streams_.emplace(id, std::move(stream));
  opened_.push_back(id);
  Grant(id, granted_bytes);
  return id;
}

void Http2Session::SendHeaders(int32_t id, const HeaderList& headers, bool end_stream) {
  Http2Stream* stream = Find(id);
  if (stream == nullptr || stream->was_reset || stream->sends_end) return;
  const size_t bytes = HeaderListBytes(headers);
  if (!CheckSentHeaders(nghttp2_, bytes).ok()) {
    Reset(id, Http2Error::kInternalError);
    return;
  }
  stream->unsent_header_bytes += bytes;
  stream->sends_end = end_stream;
  if (end_stream && (stream->sends_data || !stream->opened)) {
    stream->trailers = headers;
    stream->sends_trailers = true;
  } else {
    stream->SubmitHeaders(nghttp2_, headers, end_stream);
  }
}

absl::StatusOr<size_t> Http2Session::SendData(int32_t id, std::string bytes, bool end_stream) {
  Http2Stream* stream = Find(id);
  if (stream == nullptr || stream->was_reset) return 0;
  if (stream->sends_end) {
    return absl::FailedPreconditionError(absl::StrCat("stream ", id, " has been ended by this side already"));
  }
  const size_t unsent = stream->unsent.size() + bytes.size();
  const size_t sendable = stream->SendableBytes(nghttp2_);
  const size_t kept = unsent > sendable ? unsent - sendable : 0;
  if (kept > options_.max_unsent_bytes_per_stream) {
    return absl::ResourceExhaustedError(absl::StrCat("stream ", id, " would keep ", kept,
                                                     " bytes for a window to open, and max_unsent_bytes_per_stream is ",
                                                     options_.max_unsent_bytes_per_stream));
  }
  stream->unsent.Append(std::move(bytes));
  stream->sends_end = end_stream;
  stream->was_kept = kept > 0;
  if (!stream->sends_data && (unsent > 0 || end_stream)) {
    stream->sends_data = true;
    if (stream->opened) SubmitData(id);
  }
  return kept;
}

void Http2Session::SubmitData(int32_t id) {
  nghttp2_data_provider provider = {};
  provider.read_callback = Callbacks::ReadData;
  // END_STREAM means "with the last frame". ReadData removes the flag if the stream does not end there.
  nghttp2_submit_data(nghttp2_, NGHTTP2_FLAG_END_STREAM, id, &provider);
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

void Http2Session::Close(int32_t id, StreamEnd end) {
  const auto it = streams_.find(id);
  const std::unique_ptr<Http2Stream> stream = std::move(it->second);
  streams_.erase(it);
  stream->events.OnClosed(end);
  if (options_.side == Side::kClient) events_.OnSlots();
}

// --- Output.

void Http2Session::Output(std::string& out) {
  if (in_nghttp2_ || lost_ || serialised_to_ != nullptr) return;
  if (out.empty() && out.capacity() < output_.size()) {
    out.swap(output_);
  } else {
    out.append(output_);
  }
  std::string().swap(output_);  // an idle session keeps no buffer
  Serialise(out);
  ++outputs_;
}

bool Http2Session::wants_write() const {
  return !lost_ && (!output_.empty() || nghttp2_session_want_write(nghttp2_) ||
                    (error_.ok() && (!opened_.empty() || !granted_.empty())));
}

// The order matters. HEADERS come first: nghttp2 silently drops a window update of a stream that it has not opened.
// DATA follows, and grants come last, when nghttp2's queue is empty: BeforeFrameSend recognises them by that.
void Http2Session::Serialise(std::string& out) {
  serialised_to_ = &out;
  for (;;) {
    SerialiseFrames();
    if (lost_ || !error_.ok() || output_is_full()) break;
    if (!opened_.empty()) {
      StartOpened();
    } else if (!granted_.empty()) {
      SubmitGrants();
    } else if (!writable_.empty()) {
      TellWritable();
    } else {
      break;
    }
  }
  serialised_to_ = nullptr;
}

void Http2Session::SerialiseFrames() {
  in_nghttp2_ = true;
  for (;;) {
    const uint8_t* bytes = nullptr;
    const ssize_t size = nghttp2_session_mem_send(nghttp2_, &bytes);
    if (size < 0 && !lost_) {
      error_.Update(
          absl::InternalError(absl::StrCat("nghttp2_session_mem_send: ", nghttp2_strerror(static_cast<int>(size)))));
    }
    if (size <= 0 || lost_) break;
    serialised_to_->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
  in_nghttp2_ = false;
}

void Http2Session::StartOpened() {
  for (const int32_t id : std::exchange(opened_, {})) {
    Http2Stream* stream = Find(id);
    if (stream == nullptr) continue;
    if (nghttp2_session_find_stream(nghttp2_, id) == nullptr) {
      // Reset the stream: the server has lowered MAX_CONCURRENT_STREAMS since Open, and nghttp2 would send the request
      // later.
      nghttp2_session_set_stream_user_data(nghttp2_, id, nullptr);
      nghttp2_submit_rst_stream(nghttp2_, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
      Close(id, {StreamEnd::Kind::kUnhandled, Http2Error::kRefusedStream});
      if (lost_) return;
      continue;
    }
    stream->opened = true;
    stream->output_after = outputs_;
    if (stream->sends_data) {
      SubmitData(id);
    } else {
      stream->SubmitTrailers(nghttp2_);
    }
  }
  if (out_of_streams()) events_.OnSlots();  // once: no other stream is opened
}

void Http2Session::SubmitGrants() {
  for (const int32_t id : std::exchange(granted_, {})) {
    Http2Stream* stream = Find(id);
    // A side that has ended its stream needs no window, and a frame would only wake it.
    if (stream == nullptr || stream->was_reset || stream->received_end) continue;
    const uint64_t bytes = std::exchange(stream->grant_bytes, 0);
    constexpr uint64_t kMaxWindow = (1u << 31) - 1;
    stream->grant_is_next = true;
    if (bytes > kMaxWindow ||
        nghttp2_submit_window_update(nghttp2_, NGHTTP2_FLAG_NONE, id, static_cast<int32_t>(bytes)) != 0) {
      Reset(id, Http2Error::kFlowControlError);  // a window has 31 bits
    }
  }
}

void Http2Session::TellWritable() {
  for (const int32_t id : std::exchange(writable_, {})) {
    Http2Stream* stream = Find(id);
    if (stream == nullptr || stream->was_reset) continue;
    stream->events.OnWritable();
    if (lost_) return;
  }
}

// --- What nghttp2 calls.

void Http2Session::Callbacks::Register(nghttp2_session_callbacks* callbacks) {
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, OnBeginHeaders);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, OnHeader);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, OnDataChunk);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, OnFrame);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, OnStreamClose);
  nghttp2_session_callbacks_set_before_frame_send_callback(callbacks, BeforeFrameSend);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, OnFrameSend);
  nghttp2_session_callbacks_set_send_data_callback(callbacks, SendDataFrame);
}

Http2Stream* Http2Session::Callbacks::StreamOf(const Http2Session& session, int32_t id) {
  if (session.lost_) return nullptr;  // nghttp2 still has pointers to the streams, which are deleted
  return static_cast<Http2Stream*>(nghttp2_session_get_stream_user_data(session.nghttp2_, id));
}

int Http2Session::Callbacks::OnBeginHeaders(nghttp2_session*, const nghttp2_frame* frame, void* user_data) {
  Http2Session& session = *static_cast<Http2Session*>(user_data);
  session.headers_.clear();
  session.headers_.reserve(kTypicalFields);
  session.header_list_bytes_ = 0;
  session.header_stream_ = frame->hd.stream_id;
  if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return Done(session);
  const int32_t id = frame->hd.stream_id;
  StreamEvents* events = session.events_.OnStream(id);
  if (session.lost_) return NGHTTP2_ERR_CALLBACK_FAILURE;
  if (events == nullptr) {
    nghttp2_submit_rst_stream(session.nghttp2_, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // nghttp2 decodes the rest of the block without reporting it
  }
  // Incremental: streams of one urgency take turns. By default nghttp2 sends all of one stream before the next
  // (RFC 9218, section 4.2), so an endless stream starves the others of a client that reads slowly.
  const nghttp2_extpri turns = {.urgency = NGHTTP2_EXTPRI_DEFAULT_URGENCY, .inc = 1};
  nghttp2_session_change_extpri_stream_priority(session.nghttp2_, id, &turns, /*ignore_client_signal=*/0);
  auto stream = std::make_unique<Http2Stream>(*events, id);
  stream->opened = true;
  nghttp2_session_set_stream_user_data(session.nghttp2_, id, stream.get());
  session.streams_.emplace(id, std::move(stream));
  return 0;
}

int Http2Session::Callbacks::OnHeader(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
                                      size_t name_bytes, const uint8_t* value, size_t value_bytes, uint8_t flags,
                                      void* user_data) {
  Http2Session& session = *static_cast<Http2Session*>(user_data);
  Http2Stream* stream = StreamOf(session, frame->hd.stream_id);
  if (stream == nullptr || stream->was_reset) return Done(session);
  session.header_list_bytes_ += name_bytes + value_bytes + kHeaderFieldOverhead;
  if (session.header_list_bytes_ > session.options_.max_header_list_bytes) {
    session.headers_.clear();
    session.header_list_bytes_ = 0;
    stream->exceeded_header_list_bytes = session.options_.max_header_list_bytes;
    session.Reset(frame->hd.stream_id, Http2Error::kEnhanceYourCalm);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }
  if (session.options_.side == Side::kServer) {
    const absl::string_view name_text = View(name, name_bytes), value_text = View(value, value_bytes);
    if (!stream->rules.OnHeader(name_text, value_text)) {
      const int done = RefuseRequest(session, frame->hd.stream_id, Describe(name_text, value_text));
      return done != 0 ? done : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
  }
  session.headers_.push_back({std::string(View(name, name_bytes)), std::string(View(value, value_bytes)),
                              (flags & NGHTTP2_NV_FLAG_NO_INDEX) != 0});
  return 0;
}

int Http2Session::Callbacks::RefuseRequest(Http2Session& session, int32_t id, absl::string_view why) {
  session.Reset(id, Http2Error::kProtocolError);
  session.events_.OnMalformedRequest(why);
  return Done(session);
}

int Http2Session::Callbacks::OnHeaderBlock(Http2Session& session, const nghttp2_frame& frame) {
  session.header_list_bytes_ = 0;
  Http2Stream* stream = StreamOf(session, frame.hd.stream_id);
  if (stream == nullptr || stream->was_reset) return 0;
  if (session.options_.side == Side::kServer) {
    const bool is_request = frame.headers.cat == NGHTTP2_HCAT_REQUEST;
    if (is_request && !stream->rules.OnHeadersEnd()) {
      return RefuseRequest(session, frame.hd.stream_id, "a pseudo-header, such as :authority, is missing");
    }
    if (!is_request && !EndsStream(frame)) {
      return RefuseRequest(session, frame.hd.stream_id, "its trailers do not end it");
    }
    if (EndsStream(frame) && !stream->rules.OnEnd()) {
      return RefuseRequest(session, frame.hd.stream_id, kWrongLength);
    }
    const auto priority = is_request ? PriorityIn(session.headers_) : std::nullopt;
    if (priority.has_value()) {
      nghttp2_session_change_extpri_stream_priority(session.nghttp2_, frame.hd.stream_id, &*priority,
                                                    /*ignore_client_signal=*/0);
    }
  }
  stream->received_any = true;
  stream->events.OnHeaderBytes(kFrameHeaderBytes + frame.hd.length);  // the length includes the CONTINUATION frames
  if (IsInterim(session.headers_)) return 0;
  stream->received_end = EndsStream(frame);
  stream->events.OnHeaders(std::exchange(session.headers_, {}), EndsStream(frame));
  return Done(session);
}

int Http2Session::Callbacks::OnDataChunk(nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t bytes,
                                         void* user_data) {
  Http2Session& session = *static_cast<Http2Session*>(user_data);
  // The connection's window must not limit any stream. nghttp2 sends an update for each half of it.
  nghttp2_session_consume_connection(session.nghttp2_, bytes);
  Http2Stream* stream = StreamOf(session, id);
  if (stream == nullptr || stream->was_reset) return 0;
  if (session.options_.side == Side::kServer && !stream->rules.OnData(bytes)) {
    return RefuseRequest(session, id, kWrongLength);
  }
  stream->events.OnData(View(data, bytes), bytes, false);
  return Done(session);
}

int Http2Session::Callbacks::OnFrame(nghttp2_session*, const nghttp2_frame* frame, void* user_data) {
  Http2Session& session = *static_cast<Http2Session*>(user_data);
  if (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) ++session.received_stream_frames_;
  switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
      return OnHeaderBlock(session, *frame);
    case NGHTTP2_DATA: {
      Http2Stream* stream = StreamOf(session, frame->hd.stream_id);
      if (stream == nullptr || stream->was_reset) return 0;
      if (session.options_.side == Side::kServer && EndsStream(*frame) && !stream->rules.OnEnd()) {
        return RefuseRequest(session, frame->hd.stream_id, kWrongLength);
      }
      // OnDataChunk has passed on the bytes. Report END_STREAM only here, after the check of the body against
      // content-length. Report padding here too: its last byte is the last byte of the frame.
      stream->received_end = EndsStream(*frame);
      if (frame->data.padlen > 0 || EndsStream(*frame)) {
        stream->events.OnData(absl::string_view(), frame->data.padlen, EndsStream(*frame));
      }
      break;
    }
    case NGHTTP2_RST_STREAM:
      if (Http2Stream* stream = StreamOf(session, frame->hd.stream_id); stream != nullptr) {
        stream->received_reset = true;
      }
      break;
    case NGHTTP2_SETTINGS: {
      if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0) session.settings_unacknowledged_ = false;
      const uint32_t before =
          std::exchange(session.max_streams_,
                        nghttp2_session_get_remote_settings(session.nghttp2_, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS));
      if (session.options_.side == Side::kClient && session.max_streams_ > before) session.events_.OnSlots();
      break;
    }
    case NGHTTP2_GOAWAY:
      session.going_away_ = true;
      session.goaway_error_ = static_cast<Http2Error>(frame->goaway.error_code);
      if (session.options_.side == Side::kClient) session.events_.OnSlots();
      break;
    default:
      break;
  }
  return Done(session);
}

int Http2Session::Callbacks::OnStreamClose(nghttp2_session*, int32_t id, uint32_t error_code, void* user_data) {
  Http2Session& session = *static_cast<Http2Session*>(user_data);
  // nghttp2 does not report the rest of a block that it refuses.
  if (id == session.header_stream_) session.header_list_bytes_ = 0;
  if (const Http2Stream* stream = StreamOf(session, id); stream != nullptr) {
    session.Close(id, stream->EndWith(static_cast<Http2Error>(error_code), session.options_.side == Side::kClient));
  }
  return 0;  // not Done(): if this fails, nghttp2 1.52 leaks the HEADERS that it could not send
}

// nghttp2 treats padding as consumed, and returns it to the window of its stream. The owner could then not count the
// bytes that the other side may send, so drop every window update of a stream that is not a grant.
int Http2Session::Callbacks::BeforeFrameSend(nghttp2_session*, const nghttp2_frame* frame, void* user_data) {
  if (frame->hd.type != NGHTTP2_WINDOW_UPDATE || frame->hd.stream_id == 0) return 0;
  Http2Stream* stream = StreamOf(*static_cast<Http2Session*>(user_data), frame->hd.stream_id);
  if (stream == nullptr || !std::exchange(stream->grant_is_next, false)) return NGHTTP2_ERR_CANCEL;
  return 0;
}

int Http2Session::Callbacks::OnFrameSend(nghttp2_session*, const nghttp2_frame* frame, void* user_data) {
  if (frame->hd.type == NGHTTP2_HEADERS) {
    Http2Stream* stream = StreamOf(*static_cast<Http2Session*>(user_data), frame->hd.stream_id);
    if (stream == nullptr || stream->unsent_header_bytes == 0) return 0;  // the headers of requests are not counted
    for (const nghttp2_nv& field : absl::MakeConstSpan(frame->headers.nva, frame->headers.nvlen)) {
      stream->unsent_header_bytes -= field.namelen + field.valuelen + kHeaderFieldOverhead;
    }
  }
  if (frame->hd.type == NGHTTP2_GOAWAY) {
    const nghttp2_goaway& goaway = frame->goaway;
    static_cast<Http2Session*>(user_data)->goaway_text_ =
        absl::StrCat(nghttp2_http2_strerror(goaway.error_code), goaway.opaque_data_len > 0 ? ": " : "",
                     View(goaway.opaque_data, goaway.opaque_data_len));
  }
  return 0;
}

ssize_t Http2Session::Callbacks::ReadData(nghttp2_session*, int32_t id, uint8_t*, size_t bytes, uint32_t* flags,
                                          nghttp2_data_source*, void* user_data) {
  Http2Session& session = *static_cast<Http2Session*>(user_data);
  Http2Stream* stream = StreamOf(session, id);
  if (stream == nullptr) return NGHTTP2_ERR_CALLBACK_FAILURE;
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (stream->unsent.size() > bytes) return static_cast<ssize_t>(bytes);
  // This is the last frame until SendData submits more bytes. Deferring the next frame instead would hold back trailers
  // while the window is 0.
  *flags |= NGHTTP2_DATA_FLAG_EOF;
  stream->sends_data = false;
  if (!stream->sends_end || stream->sends_trailers) *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
  stream->SubmitTrailers(session.nghttp2_);
  return static_cast<ssize_t>(stream->unsent.size());
}

int Http2Session::Callbacks::SendDataFrame(nghttp2_session*, nghttp2_frame* frame, const uint8_t* frame_header,
                                           size_t bytes, nghttp2_data_source*, void* user_data) {
  Http2Session& session = *static_cast<Http2Session*>(user_data);
  const int32_t id = frame->hd.stream_id;
  Http2Stream* stream = StreamOf(session, id);
  if (stream == nullptr) return NGHTTP2_ERR_CALLBACK_FAILURE;
  absl::StrAppend(session.serialised_to_, View(frame_header, kFrameHeaderBytes), stream->unsent.Front(bytes));
  stream->unsent.Remove(bytes);
  if (stream->unsent.empty() && std::exchange(stream->was_kept, false) && !stream->sends_end) {
    session.writable_.push_back(id);
  }
  return session.output_is_full() ? NGHTTP2_ERR_PAUSE : 0;
}

}  // namespace sluice

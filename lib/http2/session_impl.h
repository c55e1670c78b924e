#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nghttp2/nghttp2.h>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/http2/idle_reset_filter.h"
#include "lib/http2/session.h"
#include "lib/http2/unsent_data.h"

namespace sluice {

constexpr size_t kHeaderFieldOverhead = 32;  // RFC 9113, section 6.5.2

// The state of one stream that nghttp2 does not keep. nghttp2 has a pointer to it as the stream's user data, so that no
// callback looks anything up.
struct Http2Stream {
  explicit Http2Stream(StreamEvents& stream_events) : events(stream_events) {}

  StreamEvents& events;

  bool opened = false;        // nghttp2 knows the stream: its HEADERS were serialised, or came
  uint64_t output_after = 0;  // how many times Output had been called when its HEADERS were serialised
  UnsentData unsent;
  HeaderList trailers;             // they wait for the end of `unsent`
  bool sends_trailers = false;     // there are trailers to send
  size_t unsent_header_bytes = 0;  // of SendHeaders, here or in nghttp2
  bool sends_end = false;          // the last of `unsent`, or of the trailers, carries END_STREAM
  bool sends_data = false;         // a DATA frame is submitted, or will be once the stream is opened
  bool was_kept = false;           // SendData told its caller that bytes are kept

  uint64_t grant_bytes = 0;     // granted bytes that nghttp2 does not have yet
  bool grant_is_next = false;   // the next WINDOW_UPDATE of this stream in nghttp2's queue is a Grant
  bool received_any = false;    // a header block of the response came: the server has looked at the request
  bool received_end = false;    // END_STREAM
  bool received_reset = false;  // RST_STREAM
  bool was_reset = false;       // Reset was called: only OnClosed follows

  uint32_t exceeded_header_list_bytes = 0;  // as in StreamEnd
};

// The implementation of Http2Session. nghttp2 must not be asked for output from one of its callbacks. So the session
// queues what StreamEvents and SessionEvents do to it, and serialises that once the outermost call has left nghttp2.
class Http2Session::Impl {
 public:
  Impl(const Options& options, SessionEvents& events);
  ~Impl();
  absl::Status Start();

  absl::Status Receive(absl::string_view bytes);
  void Output(std::string& out);
  bool wants_write() const;
  size_t open_slots() const;
  bool going_away() const { return going_away_ || !error_.ok() || lost_ || out_of_streams(); }
  bool out_of_streams() const { return unused_ids() == 0; }
  std::optional<Http2Error> goaway_error() const { return goaway_error_; }
  size_t streams() const { return streams_.size(); }
  absl::StatusOr<int32_t> Open(const HeaderList& headers, std::string body, bool end_stream, uint32_t granted_bytes,
                               StreamEvents& events);
  void SendHeaders(int32_t id, const HeaderList& headers, bool end_stream);
  absl::StatusOr<size_t> SendData(int32_t id, std::string bytes, bool end_stream);
  size_t unsent_bytes(int32_t id) const;
  size_t unsent_header_bytes(int32_t id) const;
  bool on_wire(int32_t id) const;
  void Grant(int32_t id, uint32_t bytes);
  void Reset(int32_t id, Http2Error error);
  void Ping();
  void GoAway(Http2Error error);
  void AnnounceGoAway();
  void Lose();

 private:
  struct Callbacks;  // nghttp2's, whose user data is the Impl

  size_t unused_ids() const;
  Http2Stream* Find(int32_t id);
  bool HasLeft(const Http2Stream& stream) const;
  StreamEnd EndOf(const Http2Stream& stream, uint32_t error_code) const;
  void Close(int32_t id, StreamEnd end);
  void Fail(absl::Status error);

  absl::Status CheckSentHeaders(size_t bytes) const;
  size_t SendableBytes(int32_t id) const;
  void SubmitHeaders(int32_t id, const HeaderList& headers, bool end_stream);
  void SubmitData(int32_t id);
  bool output_is_full() const { return serialised_to_->size() >= options_.max_output_bytes; }
  void Serialise(std::string& out);
  void SerialiseFrames();
  void StartOpened();
  void SubmitGrants();
  void TellWritable();

  const Options options_;
  SessionEvents& events_;
  nghttp2_session* nghttp2_ = nullptr;
  absl::flat_hash_map<int32_t, std::unique_ptr<Http2Stream>> streams_;

  // The header block that is coming in. Blocks of two streams never interleave (RFC 9113, section 4.3).
  HeaderList headers_;
  size_t header_list_bytes_ = 0;

  IdleResetFilter idle_resets_;

  std::string output_;                    // serialised by Receive, and not fetched by Output yet
  uint64_t outputs_ = 0;                  // calls of Output
  std::string* serialised_to_ = nullptr;  // not null while Serialise runs
  bool in_nghttp2_ = false;               // a function of nghttp2 that calls back is on the stack
  std::vector<int32_t> opened_;           // streams from Open whose HEADERS are not serialised yet
  std::vector<int32_t> granted_;          // streams with grant_bytes
  std::vector<int32_t> writable_;         // streams whose kept bytes have left

  uint32_t max_streams_ = 0;  // the other side's MAX_CONCURRENT_STREAMS
  bool going_away_ = false;
  std::optional<Http2Error> goaway_error_;
  bool lost_ = false;
  absl::Status error_;       // of the connection; after an error nothing more is received
  std::string goaway_text_;  // why nghttp2 sent a GOAWAY
};

}  // namespace sluice

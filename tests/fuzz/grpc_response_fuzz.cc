// Passes arbitrary responses of a worker to ResponseReader. Each must end in a status, respect the bounds, and not
// depend on how DATA is cut.
//
// The first byte of the input selects the end of the stream and the kind of call. Then come records: a letter, a byte
// for the length, and the content.
//   f name=value   one more header of the next header block
//   h, H           sends that header block; H with END_STREAM
//   d, D           DATA; D with END_STREAM
//   m              DATA with the content as a message
//   z              DATA with the content as a message that is marked as compressed
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lib/grpc_wire/metadata.h"
#include "lib/grpc_wire/request.h"
#include "lib/grpc_wire/response_reader.h"
#include "tests/fuzz/fuzz_input.h"

namespace sluice {
namespace {

constexpr int64_t kMaxBytes = 100'000;

struct Result {
  std::vector<std::string> messages;
  bool headers = false;
  bool failed = false;
  RpcEnd end;
};

// One reader, which receives DATA in pieces of at most `piece_bytes`.
class Call {
 public:
  Call(const ResponseReader::Options& options, size_t piece_bytes) : reader_(options), piece_bytes_(piece_bytes) {}

  void Headers(const HeaderList& headers, bool end_stream) {
    reader_.OnHeaders(headers, end_stream);
    result_.headers = true;
    CheckPending(end_stream);
  }

  void Data(absl::string_view bytes, bool end_stream) {
    for (; bytes.size() > piece_bytes_; bytes.remove_prefix(piece_bytes_)) Piece(bytes.substr(0, piece_bytes_), false);
    Piece(bytes, end_stream);
  }

  Result End(StreamEnd end) {
    result_.failed = reader_.failed();
    result_.end = reader_.End(end);
    return std::move(result_);
  }

 private:
  void Piece(absl::string_view bytes, bool end_stream) {
    reader_.OnData(bytes, end_stream);
    CheckPending(end_stream);
    for (WireMessage message; reader_.TakeMessage(message);) {
      FUZZ_CHECK(static_cast<int64_t>(message.bytes.size()) <= kMaxBytes);
      const absl::Status whole = Decompress(message, kMaxBytes);
      FUZZ_CHECK(!whole.ok() || static_cast<int64_t>(message.bytes.size()) <= kMaxBytes);
      result_.messages.push_back(whole.ok() ? std::move(message.bytes) : std::string(whole.message()));
    }
  }

  // A call that has failed or ended must not expect more bytes.
  void CheckPending(bool end_stream) const {
    const int64_t pending = reader_.pending_message_bytes();
    FUZZ_CHECK(pending >= 0 && pending <= kMaxBytes);
    FUZZ_CHECK(pending == 0 || !(reader_.failed() || end_stream));
  }

  ResponseReader reader_;
  const size_t piece_bytes_;
  Result result_;
};

void Replay(absl::string_view input, Call& call) {
  HeaderList headers;
  while (input.size() >= 2) {
    const char letter = input[0];
    const absl::string_view payload = input.substr(2, static_cast<uint8_t>(input[1]));
    input.remove_prefix(2 + payload.size());
    if (letter == 'f') {
      const std::pair<absl::string_view, absl::string_view> field = absl::StrSplit(payload, absl::MaxSplits('=', 1));
      headers.push_back({std::string(field.first), std::string(field.second)});
    } else if (letter == 'h' || letter == 'H') {
      call.Headers(std::exchange(headers, {}), letter == 'H');
    } else if (letter == 'm' || letter == 'z') {
      std::string message = FrameMessage(payload);
      message[0] = letter == 'z' ? 1 : 0;
      call.Data(message, false);
    } else {
      call.Data(payload, letter == 'D');
    }
  }
}

StreamEnd EndOf(uint8_t byte) {
  const StreamEnd::Kind kKinds[] = {StreamEnd::Kind::kComplete, StreamEnd::Kind::kReset, StreamEnd::Kind::kUnhandled,
                                    StreamEnd::Kind::kLost};
  return {kKinds[byte & 3], static_cast<Http2Error>(byte >> 4)};
}

// Received metadata must be valid to send. Headers of this input are smaller than any bound.
void CheckMetadata(const Metadata& metadata) {
  for (const auto& entry : metadata) {
    if (absl::StartsWith(entry.first, "grpc-")) continue;
    FUZZ_CHECK(ValidateMetadata({entry}).ok());
  }
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  if (size == 0) return 0;
  const absl::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const StreamEnd stream_end = EndOf(data[0]);
  const ResponseReader::Options options = {.max_message_bytes = kMaxBytes, .server_streaming = (data[0] & 4) != 0};
  Call whole(options, SIZE_MAX);
  Call bytewise(options, 1);
  Replay(input, whole);
  Replay(input, bytewise);
  const Result result = whole.End(stream_end);
  const Result other = bytewise.End(stream_end);
  // The result must not depend on how DATA is cut.
  FUZZ_CHECK(result.messages == other.messages);
  FUZZ_CHECK(result.end.status == other.end.status);
  FUZZ_CHECK(result.end.initial_metadata == other.end.initial_metadata);
  FUZZ_CHECK(result.end.trailing_metadata == other.end.trailing_metadata);

  FUZZ_CHECK(!result.failed || !result.end.status.ok());
  FUZZ_CHECK(!result.end.unhandled || (!result.headers && result.messages.empty()));
  FUZZ_CHECK(options.server_streaming || !result.end.status.ok() || result.messages.size() == 1);
  CheckMetadata(result.end.initial_metadata);
  CheckMetadata(result.end.trailing_metadata);
  return 0;
}

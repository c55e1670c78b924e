#include "lib/grpc_wire/gzip.h"

#include <algorithm>
#include <limits>

#include <zlib.h>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// The state of zlib, which the destructor frees.
class Inflater {
 public:
  explicit Inflater(absl::string_view compressed) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
    stream_.avail_in = static_cast<uInt>(compressed.size());
    constexpr int kGzipOnly = 16;
    ok_ = inflateInit2(&stream_, kGzipOnly + MAX_WBITS) == Z_OK;
  }
  ~Inflater() {
    if (ok_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  bool ok() const { return ok_; }
  // Appends at most `room` bytes to `out`. Returns Z_STREAM_END at the end of a member.
  int Inflate(size_t room, std::string& out) {
    const size_t before = out.size();
    out.resize(before + room);
    stream_.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream_.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    out.resize(out.size() - stream_.avail_out);
    return result;
  }
  bool at_end() const { return stream_.avail_in == 0; }
  bool NextMember() { return inflateReset(&stream_) == Z_OK; }

 private:
  z_stream stream_ = {};
  bool ok_ = false;
};

// The state of zlib for compressing.
class Deflater {
 public:
  Deflater() {
    constexpr int kGzip = 16;
    constexpr int kDefaultMemory = 8;
    ok_ = deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip + MAX_WBITS, kDefaultMemory,
                       Z_DEFAULT_STRATEGY) == Z_OK;
  }
  ~Deflater() {
    if (ok_) deflateEnd(&stream_);
  }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  // Returns false if the result is larger than `out`, or if zlib has no memory.
  bool DeflateAll(absl::string_view bytes, std::string& out) {
    if (!ok_) return false;
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    if (deflate(&stream_, Z_FINISH) != Z_STREAM_END) return false;
    out.resize(out.size() - stream_.avail_out);
    return true;
  }

 private:
  z_stream stream_ = {};
  bool ok_ = false;
};

absl::Status NotGzip(absl::string_view what) {
  return absl::InternalError(absl::StrCat("gzip message ", what));
}

}  // namespace

absl::StatusOr<std::string> Gunzip(absl::string_view compressed, int64_t max_bytes) {
  constexpr size_t kFirstBytes = 4096;
  constexpr size_t kMostBytes = size_t{1} << 30;  // zlib has 32-bit counters
  if (compressed.size() > std::numeric_limits<uInt>::max()) return NotGzip("has 4 GiB or more");
  // Allow one byte more than `max_bytes`, to distinguish the largest message from a message that is too large.
  const size_t limit = static_cast<size_t>(max_bytes) + 1;
  Inflater inflater(compressed);
  if (!inflater.ok()) return absl::ResourceExhaustedError("zlib has no memory to decompress a message");
  std::string bytes;
  for (;;) {
    const size_t room = std::clamp(std::max(bytes.size(), compressed.size()), kFirstBytes, kMostBytes);
    const int result = inflater.Inflate(std::min(room, limit - bytes.size()), bytes);
    if (bytes.size() == limit) {
      return absl::ResourceExhaustedError(
          absl::StrCat("message is larger than ", max_bytes, " bytes once it is decompressed"));
    }
    if (result == Z_STREAM_END) {
      if (inflater.at_end()) return bytes;
      if (!inflater.NextMember()) return NotGzip("cannot be decompressed");
    } else if (result == Z_BUF_ERROR) {
      return NotGzip("is cut off");
    } else if (result != Z_OK) {
      return NotGzip("does not decompress");
    }
  }
}

std::optional<std::string> Gzip(absl::string_view bytes) {
  if (bytes.empty()) return std::nullopt;
  std::string compressed(bytes.size() - 1, '\0');
  if (!Deflater().DeflateAll(bytes, compressed)) return std::nullopt;
  return compressed;
}

}  // namespace sluice

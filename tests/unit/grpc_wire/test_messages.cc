#include "tests/unit/grpc_wire/test_messages.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "lib/grpc_wire/request.h"
#include "lib/grpc_wire/response_head.h"

namespace sluice {

std::string GzipOf(absl::string_view bytes) {
  constexpr int kGzip = 16;
  constexpr int kMemoryLevel = 8;
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip + MAX_WBITS, kMemoryLevel, Z_DEFAULT_STRATEGY),
            Z_OK);
  std::string compressed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(compressed.data());
  stream.avail_out = static_cast<uInt>(compressed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  compressed.resize(compressed.size() - stream.avail_out);
  deflateEnd(&stream);
  return compressed;
}

std::string Framed(char flag, absl::string_view bytes) {
  std::string framed = FrameMessage(bytes);
  framed[0] = flag;
  return framed;
}

std::string CompressedMessage(absl::string_view bytes) {
  return Framed(1, GzipOf(bytes));
}

HeaderList Head() {
  return ToHeaders(ResponseHead{});
}

HeaderList OkTrailers() {
  return ToTrailers(absl::OkStatus(), "", {});
}

}  // namespace sluice

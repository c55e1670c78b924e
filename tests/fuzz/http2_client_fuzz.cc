// Feeds a client's session with arbitrary bytes of a server.
#include "tests/fuzz/http2_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::Http2Fuzz(sluice::Http2Session::Side::kClient, sluice::FuzzInput(data, size)).Run();
  return 0;
}

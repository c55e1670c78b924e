// The bytes of a client against a server's session.
#include "tests/fuzz/http2_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::Http2Fuzz(sluice::Http2Session::Side::kServer, sluice::FuzzInput(data, size)).Run();
  return 0;
}

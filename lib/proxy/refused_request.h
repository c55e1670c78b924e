#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"

namespace sluice {

// The trailer that asks a client of gRPC not to repeat a call at once: "grpc-retry-pushback-ms" (gRFC A6), half a
// second to one and a half. Clients that were refused together do not come back together. `random` is from 0 to 1.
HeaderField RetryPushback(double random);

// A call that the proxy refuses before it reads it, with a status that says why. There is one for each such stream,
// until it closes. Used on the link's thread only.
class RefusedRequest final : public StreamEvents {
 public:
  // Sends trailers alone, with END_STREAM. `headers` are those of the request.
  using Respond = std::function<void(const HeaderList& headers, const HeaderList& trailers)>;
  // `on_closed` may destroy the call.
  RefusedRequest(absl::Status why, double random, Respond respond, std::function<void()> on_closed);

  void OnHeaders(HeaderList headers, bool end_stream) override;
  void OnData(absl::string_view /*bytes*/, size_t /*window_bytes*/, bool /*end_stream*/) override {}
  void OnClosed(StreamEnd end) override;

 private:
  const absl::Status why_;
  const double random_;
  const Respond respond_;
  const std::function<void()> on_closed_;
  bool responded_ = false;
};

}  // namespace sluice

#include "lib/proxy/refused_request.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/response_head.h"

namespace sluice {

HeaderField RetryPushback(double random) {
  constexpr int kLeastMs = 500;
  constexpr int kSpreadMs = 1000;
  return {"grpc-retry-pushback-ms", absl::StrCat(kLeastMs + static_cast<int>(random * kSpreadMs))};
}

RefusedRequest::RefusedRequest(absl::Status why, double random, Respond respond, std::function<void()> on_closed)
    : why_(std::move(why)), random_(random), respond_(std::move(respond)), on_closed_(std::move(on_closed)) {}

void RefusedRequest::OnHeaders(HeaderList headers, bool /*end_stream*/) {
  if (std::exchange(responded_, true)) return;
  HeaderList trailers = ToTrailersOnly(why_, "", {});
  trailers.push_back(RetryPushback(random_));
  respond_(headers, trailers);
}

void RefusedRequest::OnClosed(StreamEnd /*end*/) {
  on_closed_();
}

}  // namespace sluice

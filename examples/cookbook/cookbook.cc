// The recipes of docs/guides/cookbook.md in C++, against the servers of examples/adoption. Arguments: RECIPE SHARD...
// Prints how the fan-out ended.
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sluice/fan_out.h"

#include "examples/adoption/shards.pb.h"

namespace {

const sluice::Method<adoption::CountRequest, adoption::CountResponse> kCount{"/adoption.Shards/CountWords"};

std::shared_ptr<sluice::Link> MakeLink() {
  // [snippet]
  sluice::Link::Options options;
  options.schedule.profile.capacity_bytes_per_second = 100e6 / 8;
  options.schedule.profile.buffer_bytes = 32 * 1024;
  options.schedule.classes = {{.name = "queries", .weight = 3}, {.name = "scan", .weight = 1}};
  const std::shared_ptr<sluice::Link> link = sluice::Link::Create(options).value();
  // [snippet]
  return link;
}

// The second half of the workers has the same shards as the first.
sluice::FanOutResult Hedge(sluice::FanOut& shards, const adoption::CountRequest& request) {
  std::set<size_t> counted;
  // [snippet]
  const size_t half = shards.workers() / 2;
  sluice::FanOutOptions options;
  options.timeout = absl::Seconds(2);
  options.hedge_after_quantile = 0.95;  // the slowest twentieth of the responses
  options.hedge_ratio = 0.1;            // at most a tenth more requests
  const sluice::FanOutResult result = shards.Call(
      kCount,
      [&](size_t worker) -> std::optional<sluice::Ask<adoption::CountRequest>> {
        if (worker >= half) return std::nullopt;  // only a replica
        sluice::Ask<adoption::CountRequest> ask(request);
        ask.replicas = {worker + half};
        return ask;
      },
      [&](size_t worker, const adoption::CountResponse& /*response*/) {
        counted.insert(worker);  // the primary, even if its replica has responded
        return absl::OkStatus();
      },
      options);
  // [snippet]
  return result;
}

sluice::FanOutResult Quorum(sluice::FanOut& shards, const adoption::CountRequest& request) {
  // [snippet]
  sluice::FanOutOptions options;
  options.timeout = absl::Milliseconds(500);
  options.success_quorum = static_cast<int>(shards.workers() * 9 / 10);
  const auto [result, responses] = shards.Collect(
      kCount, [&](size_t) { return request; }, options);
  if (!result.status.ok()) std::cerr << result.answered << " of " << result.asked << ": " << result.status << "\n";
  // [snippet]
  return result;
}

sluice::FanOutResult Stream(sluice::FanOut& shards, const adoption::CountRequest& request) {
  size_t words = 0;
  // [snippet]
  const sluice::Method<adoption::CountRequest, adoption::CountResponse> stream{.path = "/adoption.Shards/CountWords",
                                                                               .server_streaming = true};
  const sluice::FanOutResult result = shards.Call(
      stream, [&](size_t) { return request; },
      [&](size_t /*worker*/, const adoption::CountResponse& message) {  // for each message of each stream
        words += static_cast<size_t>(message.counts().size());
        return absl::OkStatus();
      },
      {.timeout = absl::Seconds(10)});
  // [snippet]
  return result;
}

sluice::FanOutResult Scan(sluice::FanOut& shards, const adoption::CountRequest& request) {
  // [snippet]
  sluice::FanOutOptions options;
  options.timeout = absl::Minutes(1);
  options.traffic_class = "scan";  // a quarter of the link while queries need the rest
  const auto [result, responses] = shards.Collect(
      kCount, [&](size_t) { return request; }, options);
  // [snippet]
  return result;
}

sluice::FanOutResult Trace(sluice::FanOut& shards, const adoption::CountRequest& request) {
  const std::string trace = "00-0af7651916cd43dd8448eb211c80319c-";
  const std::string span = "b7ad6b7169203331-01";
  // [snippet]
  sluice::FanOutOptions options;
  options.metadata = {{"traceparent", trace + span}};  // W3C trace context; tracestate, baggage likewise
  options.keep_response_metadata = true;
  const auto [result, responses] = shards.Collect(
      kCount, [&](size_t) { return request; }, options);
  for (const sluice::ResponseMetadata& response : result.responses) {
    // One child span for each response: the worker, and whether it was a replica.
    std::cout << result.workers->at(response.worker) << (response.worker == response.primary ? "" : " hedged") << "\n";
  }
  // [snippet]
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<sluice::FanOutResult(sluice::FanOut&, const adoption::CountRequest&)>>
      recipes = {{"hedge", Hedge}, {"quorum", Quorum}, {"stream", Stream}, {"scan", Scan}, {"trace", Trace}};
  if (argc < 3 || !recipes.contains(argv[1])) {
    std::cerr << "usage: " << argv[0] << " hedge|quorum|stream|scan|trace SHARD...\n";
    return 2;
  }
  const auto shards = sluice::FanOut::Create(MakeLink(), {.workers = {argv + 2, argv + argc}});
  if (!shards.ok()) {
    std::cerr << shards.status().message() << "\n";
    return 2;
  }
  adoption::CountRequest request;
  request.set_prefix("word-1");
  const sluice::FanOutResult result = recipes.at(argv[1])(**shards, request);
  std::cout << result.answered << " of " << result.asked << ": " << result.status << "\n";
  return result.status.ok() ? 0 : 1;
}

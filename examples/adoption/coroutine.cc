// Counts the words of a corpus, each shard of which is on a different server. Arguments: PREFIX SHARD...
#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <utility>

// Boost 1.74 needs <utility> and does not include it in C++20.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include "sluice/asio.h"
#include "sluice/fan_out.h"

#include "examples/adoption/shards.pb.h"

namespace {

using Totals = std::map<std::string, uint64_t>;

void Add(const adoption::CountResponse& response, Totals& totals) {
  for (const auto& [word, count] : response.counts()) totals[word] += count;
}

void Complain(size_t shard, const std::string& message) {
  std::cerr << "shard " << shard << ": " << message << "\n";
}

// Calls all shards at once, and adds up the responses that arrive in time.
boost::asio::awaitable<Totals> CountWords(sluice::FanOut& shards, adoption::CountRequest request) {
  Totals totals;
  const sluice::Method<adoption::CountRequest, adoption::CountResponse> method{"/adoption.Shards/CountWords"};
  const auto add = [&totals](size_t, const adoption::CountResponse& response) {
    Add(response, totals);
    return absl::OkStatus();
  };
  const sluice::FanOutOptions options{.timeout = absl::Seconds(5), .fail_limit = static_cast<int>(shards.workers())};
  const sluice::FanOutResult result = co_await sluice::AsyncCall(
      shards, method, [&](size_t) { return request; }, add, options, boost::asio::use_awaitable);
  for (const auto& failure : result.failures) Complain(failure.worker, std::string(failure.status.message()));
  co_return totals;
}

void Print(const Totals& totals) {
  for (const auto& [word, count] : totals) std::cout << word << " " << count << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: " << argv[0] << " PREFIX SHARD...\n";
    return 2;
  }
  adoption::CountRequest request;
  request.set_prefix(argv[1]);
  const auto link = sluice::Link::Create(sluice::LinkProfile());  // say there what your network is
  const auto shards = sluice::FanOut::Create(*link, {.workers = {argv + 2, argv + argc}});
  if (!shards.ok()) {
    std::cerr << shards.status().message() << "\n";
    return 2;
  }
  boost::asio::io_context context;
  auto totals = boost::asio::co_spawn(context, CountWords(**shards, request), boost::asio::use_future);
  context.run();
  Print(totals.get());
}

// Counts the words of a corpus whose shards are gRPC servers without Sluice (adoption-server):
// fan_out SHARD...

// [snippet]
#include "sluice/fan_out.h"

#include <iostream>

#include "examples/adoption/shards.pb.h"  // messages of an ordinary gRPC service

int main(int argc, char** argv) {
  sluice::LinkProfile profile;
  profile.capacity_bytes_per_second = 100e6 / 8;  // the last hop into this host
  profile.buffer_bytes = 32 * 1024;               // of the switch port that feeds it
  auto link = sluice::Link::Create(profile);      // one for each bottleneck link, shared by all that comes in over it
  if (!link.ok()) return std::cerr << link.status() << '\n', 1;

  auto shards = sluice::FanOut::Create(*link, {.workers = {argv + 1, argv + argc}});
  if (!shards.ok()) return std::cerr << shards.status() << '\n', 1;

  const sluice::Method<adoption::CountRequest, adoption::CountResponse> count{"/adoption.Shards/CountWords"};
  auto result = (*shards)->Call(  // all at once, and never more on its way than the buffer holds
      count, [](size_t /*shard*/) { return adoption::CountRequest(); },
      [](size_t shard, const adoption::CountResponse& answer) {
        std::cout << "shard " << shard << ": " << answer.counts().size() << " words\n";
        return absl::OkStatus();
      },
      {.timeout = absl::Seconds(2), .fail_limit = 1});
  std::cout << result.answered << " of " << result.asked << " shards: " << result.status << '\n';
}
// [snippet]

// Reads one data block of a striped file without an aggregator process: read_block FILE WORKER...

// [snippet]
#include <iostream>

#include "sluice/block_reader.h"

int main(int argc, char** argv) {
  if (argc < 3) return std::cerr << "usage: read_block FILE WORKER...\n", 2;

  sluice::LinkProfile profile;
  profile.capacity_bytes_per_second = 100e6 / 8;  // the last hop into this host
  profile.buffer_bytes = 32 * 1024;               // of the switch port that feeds it
  auto link = sluice::Link::Create(profile);      // one for each bottleneck link, shared by all its readers
  if (!link.ok()) return std::cerr << link.status() << '\n', 1;

  auto reader = sluice::BlockReader::Create(*link, {.workers = {argv + 2, argv + argc}});
  if (!reader.ok()) return std::cerr << reader.status() << '\n', 1;

  auto block = (*reader)->Read(argv[1], /*block=*/0);  // at most the buffer's size in flight
  if (!block.ok()) return std::cerr << block.status() << '\n', 1;
  std::cout << block->data;
}
// [snippet]

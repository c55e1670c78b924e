// The whole library in a project of its own: a link, and a reader that refuses to be made without workers.
#include <iostream>
#include <memory>

#include "sluice/block_reader.h"
#include "sluice/link.h"

int main() {
  auto link = sluice::Link::Create(sluice::LinkProfile{});
  if (!link.ok()) {
    std::cerr << link.status() << "\n";
    return 1;
  }
  const auto reader = sluice::BlockReader::Create(*link, {});
  if (reader.status().code() != absl::StatusCode::kInvalidArgument) {
    std::cerr << "a reader without workers: " << reader.status() << "\n";
    return 1;
  }
  return 0;
}

// A client in a project of its own, which may lack gRPC: a link with its metrics on a port, a fan-out and a reader.
// Creating the last two without workers must fail.
#include <iostream>
#include <memory>

#include "sluice/block_reader.h"
#include "sluice/fan_out.h"
#include "sluice/link.h"
#include "sluice/metrics_server.h"

int main() {
  auto link = sluice::Link::Create(sluice::LinkProfile{});
  if (!link.ok()) {
    std::cerr << link.status() << "\n";
    return 1;
  }
  const auto metrics = sluice::MetricsServer::Start(*link, "127.0.0.1:0");
  if (!metrics.ok()) {
    std::cerr << metrics.status() << "\n";
    return 1;
  }
  const auto fan_out = sluice::FanOut::Create(*link, {});
  const auto reader = sluice::BlockReader::Create(*link, {});
  for (const absl::Status& status : {fan_out.status(), reader.status()}) {
    if (status.code() == absl::StatusCode::kInvalidArgument) continue;
    std::cerr << "without workers: " << status << "\n";
    return 1;
  }
  return 0;
}

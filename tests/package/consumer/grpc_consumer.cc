// What needs gRPC, in a project of its own: a gated channel, refused for want of a size.
#include <iostream>
#include <memory>

#include <grpcpp/security/credentials.h>

#include "sluice/interceptor.h"

int main() {
  const auto link = sluice::Link::Create({.schedule = {.discipline = sluice::Discipline::kRolling}});
  if (!link.ok()) {
    std::cerr << link.status() << "\n";
    return 1;
  }
  const auto channel = sluice::CreateGatedChannel(*link, "127.0.0.1:1", grpc::InsecureChannelCredentials(), {});
  if (channel.status().code() != absl::StatusCode::kInvalidArgument) {
    std::cerr << "a gated channel without sizes: " << channel.status() << "\n";
    return 1;
  }
  return 0;
}

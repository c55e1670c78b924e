// Uses the parts that need gRPC in a project of its own: a channel to an endpoint, and a worker that does not exist.
#include <chrono>
#include <iostream>
#include <memory>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "sluice/endpoint.h"

int main() {
  const auto link = sluice::Link::Create(sluice::Link::Options());
  if (!link.ok()) {
    std::cerr << link.status() << "\n";
    return 1;
  }
  const auto endpoint = sluice::Endpoint::Create(*link);
  if (!endpoint.ok()) {
    std::cerr << endpoint.status() << "\n";
    return 1;
  }
  const auto channel = grpc::CreateChannel((*endpoint)->target(), grpc::InsecureChannelCredentials());
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10))) {
    std::cerr << "no connection to " << (*endpoint)->target() << "\n";
    return 1;
  }
  return 0;
}

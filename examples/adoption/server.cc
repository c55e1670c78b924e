// Plain gRPC servers without Sluice, one for each shard of a generated corpus: server SHARDS
// Prints their addresses on one line, and serves until its standard input ends.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "examples/adoption/shards.grpc.pb.h"

namespace {

constexpr int kMaxShards = 1000;
constexpr int kWords = 1000;

class Shard final : public adoption::Shards::Service {
 public:
  explicit Shard(int number) : number_(number) {}

  grpc::Status CountWords(grpc::ServerContext*, const adoption::CountRequest* request,
                          adoption::CountResponse* response) override {
    for (int i = 0; i < kWords; ++i) {
      const std::string word = "word-" + std::to_string(i);
      if (word.starts_with(request->prefix())) (*response->mutable_counts())[word] = Count(i);
    }
    return grpc::Status::OK;
  }

 private:
  uint64_t Count(int word) const { return static_cast<uint64_t>(1 + (word * 31 + number_ * 17) % 97); }

  const int number_;
};

}  // namespace

int main(int argc, char** argv) {
  const int count = argc == 2 ? std::atoi(argv[1]) : 0;
  if (count < 1 || count > kMaxShards) {
    std::cerr << "usage: " << argv[0] << " SHARDS, 1 to " << kMaxShards << "\n";
    return 2;
  }
  std::vector<std::unique_ptr<Shard>> shards;
  std::vector<std::unique_ptr<grpc::Server>> servers;
  for (int i = 0; i < count; ++i) {
    int port = 0;
    shards.push_back(std::make_unique<Shard>(i));
    servers.push_back(grpc::ServerBuilder()
                          .AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port)
                          .RegisterService(shards.back().get())
                          .BuildAndStart());
    if (!servers.back()) return 1;
    std::cout << (i == 0 ? "" : " ") << "127.0.0.1:" << port;
  }
  std::cout << std::endl;
  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
  return 0;
}

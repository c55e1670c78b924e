// Counts the words of a corpus, each shard of which is on a different server. Arguments: PREFIX SHARD...
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "examples/adoption/shards.grpc.pb.h"

namespace {

using Totals = std::map<std::string, uint64_t>;

void Add(const adoption::CountResponse& response, Totals& totals) {
  for (const auto& [word, count] : response.counts()) totals[word] += count;
}

void Complain(size_t shard, const std::string& message) {
  std::cerr << "shard " << shard << ": " << message << "\n";
}

struct Call {
  grpc::ClientContext context;
  adoption::CountResponse response;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<adoption::CountResponse>> reader;
};

// Calls all shards at once, and adds up the responses that arrive in time.
Totals CountWords(const std::vector<std::unique_ptr<adoption::Shards::Stub>>& shards,
                  const adoption::CountRequest& request) {
  Totals totals;
  grpc::CompletionQueue queue;
  std::vector<Call> calls(shards.size());
  for (size_t i = 0; i < shards.size(); ++i) {
    calls[i].context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    calls[i].reader = shards[i]->AsyncCountWords(&calls[i].context, request, &queue);
    calls[i].reader->Finish(&calls[i].response, &calls[i].status, &calls[i]);
  }
  for (size_t left = shards.size(); left > 0; --left) {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    const Call& call = *static_cast<Call*>(tag);
    if (call.status.ok()) {
      Add(call.response, totals);
    } else {
      Complain(static_cast<size_t>(&call - calls.data()), call.status.error_message());
    }
  }
  return totals;
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
  std::vector<std::unique_ptr<adoption::Shards::Stub>> shards;
  for (int i = 2; i < argc; ++i) {
    shards.push_back(adoption::Shards::NewStub(grpc::CreateChannel(argv[i], grpc::InsecureChannelCredentials())));
  }
  Print(CountWords(shards, request));
}

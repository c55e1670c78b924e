// A plain gRPC server with one of the 6 fragments of a file: server FILE NUMBER [DELAY [rotten]]
// Prints its address, and serves until its standard input ends. Every response is delayed by DELAY milliseconds. With
// "rotten", one bit of each fragment has changed since it was written.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <grpcpp/alarm.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "examples/coded-read/checksums.h"
#include "examples/coded-read/erasure_code.h"
#include "examples/coded-read/fragments.grpc.pb.h"

namespace {

class FragmentServer final : public coded::Fragments::CallbackService {
 public:
  FragmentServer(const std::string& object, size_t number, std::chrono::milliseconds delay, bool rotten)
      : delay_(delay) {
    coded::Sha256 sum;
    sum.Add(object);
    version_.set_sha256(sum.Finish());
    version_.set_bytes(object.size());
    for (size_t at = 0; at < object.size(); at += coded::kStripeBytes) {
      coded::Fragment& fragment = fragments_.emplace_back();
      fragment.set_data(std::move(coded::Encode(object.substr(at, coded::kStripeBytes))[number]));
      fragment.set_crc32c(coded::Crc32c(fragment.data()));
      fragment.set_version(version_.sha256());
      if (rotten) fragment.mutable_data()->front() ^= 1;
    }
  }

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context, const coded::DescribeRequest* /*request*/,
                                     coded::ObjectVersion* response) override {
    *response = version_;
    return Respond(*context);
  }

  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context, const coded::FragmentRequest* request,
                                coded::Fragment* response) override {
    if (request->stripe() < fragments_.size()) *response = fragments_[request->stripe()];
    return Respond(*context);
  }

 private:
  grpc::ServerUnaryReactor* Respond(grpc::CallbackServerContext& context) const {
    grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
    if (delay_.count() == 0) {
      reactor->Finish(grpc::Status::OK);
    } else {
      const auto alarm = std::make_shared<grpc::Alarm>();
      alarm->Set(std::chrono::system_clock::now() + delay_,
                 [alarm, reactor](bool) { reactor->Finish(grpc::Status::OK); });
    }
    return reactor;
  }

  const std::chrono::milliseconds delay_;
  coded::ObjectVersion version_;
  std::vector<coded::Fragment> fragments_;  // by stripe
};

}  // namespace

int main(int argc, char** argv) {
  const size_t number = argc >= 3 ? static_cast<size_t>(std::atoi(argv[2])) : coded::kFragments;
  std::ifstream file(argc >= 2 ? argv[1] : "", std::ios::binary);
  const bool rotten = argc == 5 && std::string_view(argv[4]) == "rotten";
  if (!file || number >= coded::kFragments || argc > (rotten ? 5 : 4)) {
    std::cerr << "usage: " << argv[0] << " FILE NUMBER [DELAY [rotten]], with a number from 0 to 5, and milliseconds\n";
    return 2;
  }
  const std::string object(std::istreambuf_iterator<char>(file), {});
  FragmentServer service(object, number, std::chrono::milliseconds(argc >= 4 ? std::atoi(argv[3]) : 0), rotten);
  int port = 0;
  const std::unique_ptr<grpc::Server> server =
      grpc::ServerBuilder()
          .AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port)
          .RegisterService(&service)
          .BuildAndStart();
  if (!server) return 1;
  std::cout << "127.0.0.1:" << port << std::endl;
  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

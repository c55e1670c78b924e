// Serves the features of gRPC's interop suite that its servers in other languages lack, CompressedRequest and
// CompressedResponse, with gRPC C++. Usage: interop_compression_server PORT [CERTIFICATE_FILE KEY_FILE]. Writes
// "listening" to stderr.

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "grpc_testing.grpc.pb.h"
#include "lib/grpc_wire/gzip.h"

namespace grpc::testing {
namespace {

constexpr int64_t kMostBytes = 64 << 20;

std::string ToString(const ByteBuffer& bytes) {
  std::vector<Slice> slices;
  if (!bytes.Dump(&slices).ok()) return "";
  std::string text;
  for (const Slice& slice : slices) text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return text;
}

template <class Response>
void Fill(int size, Response& response) {
  response.mutable_payload()->set_body(std::string(static_cast<size_t>(size), '\0'));
}

// gRPC C++ does not report whether a message arrived compressed, so this server disables decompression. One for each
// process. Thread-safe.
class Service final : public TestService::WithRawCallbackMethod_UnaryCall<TestService::CallbackService> {
  ServerUnaryReactor* UnaryCall(CallbackServerContext* context, const ByteBuffer* bytes,
                                ByteBuffer* response_bytes) override {
    ServerUnaryReactor* const reactor = context->DefaultReactor();
    const auto answer = [&]() -> Status {
      std::string text = ToString(*bytes);
      // The first byte of gzip cannot begin a SimpleRequest, because 7 is not a wire type.
      const bool compressed = text.rfind("\x1f\x8b", 0) == 0;
      if (compressed) {
        auto decompressed = sluice::Gunzip(text, kMostBytes);
        if (!decompressed.ok()) return {StatusCode::INTERNAL, std::string(decompressed.status().message())};
        text = *std::move(decompressed);
      }
      SimpleRequest request;
      if (!request.ParseFromString(text)) return {StatusCode::INTERNAL, "this is not a SimpleRequest"};
      if (request.has_expect_compressed() && request.expect_compressed().value() != compressed) {
        return {StatusCode::INVALID_ARGUMENT, compressed ? "the request came compressed" : "it came uncompressed"};
      }
      context->set_compression_algorithm(request.response_compressed().value() ? GRPC_COMPRESS_GZIP
                                                                               : GRPC_COMPRESS_NONE);
      SimpleResponse response;
      Fill(request.response_size(), response);
      const Slice slice(response.SerializeAsString());
      *response_bytes = ByteBuffer(&slice, 1);
      return Status::OK;
    };
    reactor->Finish(answer());
    return reactor;
  }

  class Stream final : public ServerWriteReactor<StreamingOutputCallResponse> {
   public:
    explicit Stream(const StreamingOutputCallRequest& request) : request_(request) { Next(true); }
    void OnWriteDone(bool ok) override { Next(ok); }
    void OnDone() override { delete this; }

   private:
    void Next(bool ok) {
      if (!ok || sent_ == request_.response_parameters_size()) return Finish(Status::OK);
      const ResponseParameters& wanted = request_.response_parameters(sent_++);
      Fill(wanted.size(), response_);
      WriteOptions options;
      if (!wanted.compressed().value()) options.set_no_compression();
      StartWrite(&response_, options);
    }

    const StreamingOutputCallRequest request_;
    StreamingOutputCallResponse response_;
    int sent_ = 0;
  };

  ServerWriteReactor<StreamingOutputCallResponse>* StreamingOutputCall(
      CallbackServerContext* context, const StreamingOutputCallRequest* request) override {
    context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
    return new Stream(*request);
  }
};

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int Serve(const std::string& port, std::shared_ptr<ServerCredentials> credentials) {
  Service service;
  ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort("127.0.0.1:" + port, std::move(credentials));
  builder.RegisterService(&service);
  const std::unique_ptr<Server> server = builder.BuildAndStart();
  if (server == nullptr) return EXIT_FAILURE;
  std::cerr << "listening" << std::endl;
  server->Wait();
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace grpc::testing

int main(int argc, char** argv) {
  if (argc == 2) return grpc::testing::Serve(argv[1], grpc::InsecureServerCredentials());
  if (argc != 4) return 2;
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({grpc::testing::ReadFile(argv[3]), grpc::testing::ReadFile(argv[2])});
  return grpc::testing::Serve(argv[1], grpc::SslServerCredentials(options));
}

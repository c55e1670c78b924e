#include <string>
#include <utility>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "sluice/worker.h"

namespace sluice {
namespace {

// Initial metadata in which a worker announces the bytes of its answer's message, in decimal.
constexpr char kResponseSizeHeader[] = "sluice-response-bytes";

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

// One a call; gRPC owns it.
class Announcer final : public grpc::experimental::Interceptor {
 public:
  void Intercept(InterceptorBatchMethods* batch) override {
    // Both are in one batch where the handler sent nothing before. The message is serialized here instead of by gRPC,
    // not twice.
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA) &&
        batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      const size_t bytes = batch->GetSerializedSendMessage()->Length();
      batch->GetSendInitialMetadata()->emplace(kResponseSizeHeader, std::to_string(bytes));
    }
    batch->Proceed();
  }
};

class AnnouncerFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* call) override {
    return call->type() == ServerRpcInfo::Type::UNARY ? new Announcer : nullptr;
  }
};

}  // namespace

void AnnounceResponseSizes(grpc::ServerBuilder& builder) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(ResponseSizeAnnouncer());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> ResponseSizeAnnouncer() {
  return std::make_unique<AnnouncerFactory>();
}

}  // namespace sluice

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <google/protobuf/message_lite.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/client_interceptor.h>
#include <grpcpp/support/interceptor.h>
#include <grpcpp/support/status.h>

#include "sluice/interceptor.h"
#include "sluice/plan.h"

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/fan_out/method_history.h"
#include "lib/interceptor/gated_call.h"

namespace sluice {
namespace {

using grpc::experimental::ClientRpcInfo;
using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

absl::Status CheckSize(std::string_view method, int64_t response_bytes) {
  if (response_bytes >= 0 && response_bytes <= kMaxResponseBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("response_bytes of ", absl::string_view(method.data(), method.size()),
                                                 ": ", response_bytes, " is outside of 0 to ", kMaxResponseBytes));
}

// What the call itself says that its answer is; none when it says nothing. Takes it out of the metadata.
absl::StatusOr<std::optional<int64_t>> TakeExpectedBytes(std::multimap<std::string, std::string>& metadata) {
  const auto said = metadata.find(kExpectedResponseBytesKey);
  if (said == metadata.end()) return std::nullopt;
  const std::string text = std::move(said->second);
  metadata.erase(kExpectedResponseBytesKey);
  int64_t bytes = 0;
  if (absl::SimpleAtoi(text, &bytes)) return bytes;
  return absl::InvalidArgumentError(absl::StrCat(kExpectedResponseBytesKey, ": \"", text, "\" is not a number"));
}

// What the answers of one method were. Thread-safe.
class LearntSize {
 public:
  std::optional<int64_t> bytes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return history_.ResponseBytes();
  }
  void Observe(int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    history_.ObserveResponse(bytes);
  }

 private:
  mutable std::mutex mutex_;
  MethodHistory history_;  // guarded by mutex_
};

// Of one RPC: made before it starts, gone with its context. gRPC calls it from any thread, for a cancellation also at
// the same time as for something else.
class GatingInterceptor final : public grpc::experimental::Interceptor {
 public:
  // `learnt` is null where nothing is learnt.
  GatingInterceptor(ClientRpcInfo& info, std::shared_ptr<Link> link, int64_t response_bytes,
                    std::shared_ptr<LearntSize> learnt)
      : info_(info),
        response_bytes_(response_bytes),
        learnt_(std::move(learnt)),
        link_(std::move(link)),
        call_(std::make_shared<GatedCall>(*link_)) {}

  // A stream that was left before its end has no status; a call that never started has nothing to give back.
  ~GatingInterceptor() override { call_->End(grpc::StatusCode::CANCELLED); }

  // The RPC may end on another thread, and this object with it, as soon as it proceeds: what is used after that is held
  // here.
  void Intercept(InterceptorBatchMethods* operations) override {
    const std::shared_ptr<Link> link = link_;
    if (operations->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_CANCEL)) return call_->Cancel();
    if (operations->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      return Start(*operations);
    }
    if (learnt_ && operations->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      Measure(operations->GetRecvMessage());
    }
    if (operations->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_STATUS)) {
      End(*operations->GetRecvStatus());
    }
    operations->Proceed();
  }

 private:
  void Start(InterceptorBatchMethods& operations) {
    grpc::ClientContext& context = *info_.client_context();
    const auto said = TakeExpectedBytes(*operations.GetSendInitialMetadata());
    if (!said.ok()) return GatedCall::Refuse(operations, context, said.status());
    const std::optional<int64_t> learnt = learnt_ ? learnt_->bytes() : std::nullopt;
    const int64_t response_bytes = said->value_or(learnt.value_or(response_bytes_));
    if (absl::Status size = CheckSize(info_.method(), response_bytes); !size.ok()) {
      return GatedCall::Refuse(operations, context, size);
    }
    call_->Start(operations, context, response_bytes);
  }

  // What generated stubs hand to gRPC: a message as MessageLite, or of its own type, which has no other base.
  void Measure(const void* message) {
    if (message == nullptr) return;  // the end of a stream
    received_bytes_ += static_cast<int64_t>(static_cast<const google::protobuf::MessageLite*>(message)->ByteSizeLong());
  }

  void End(const grpc::Status& status) {
    if (learnt_ && status.ok()) learnt_->Observe(received_bytes_);
    call_->End(status.error_code());
  }

  ClientRpcInfo& info_;
  const int64_t response_bytes_;
  const std::shared_ptr<LearntSize> learnt_;
  std::atomic<int64_t> received_bytes_ = 0;
  const std::shared_ptr<Link> link_;
  const std::shared_ptr<GatedCall> call_;
};

// One a channel. Thread-safe.
class GatingInterceptorFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  GatingInterceptorFactory(std::shared_ptr<Link> link, GatingOptions options)
      : link_(std::move(link)), options_(std::move(options)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(ClientRpcInfo* info) override {
    if (info->type() != ClientRpcInfo::Type::UNARY && info->type() != ClientRpcInfo::Type::SERVER_STREAMING) {
      return nullptr;
    }
    const std::optional<int64_t> response_bytes = options_.response_bytes(info->method());
    if (!response_bytes.has_value()) return nullptr;
    auto learnt = options_.learn_response_bytes ? SizeOf(info->method()) : nullptr;
    return std::make_unique<GatingInterceptor>(*info, link_, *response_bytes, std::move(learnt))
        .release();  // gRPC owns it
  }

 private:
  std::shared_ptr<LearntSize> SizeOf(const std::string& method) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<LearntSize>& size = sizes_[method];
    if (!size) size = std::make_shared<LearntSize>();
    return size;
  }

  const std::shared_ptr<Link> link_;
  const GatingOptions options_;

  std::mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<LearntSize>> sizes_;  // guarded by mutex_
};

}  // namespace

absl::StatusOr<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> CreateGatingInterceptorFactory(
    std::shared_ptr<Link> link, GatingOptions options) {
  if (!link) return absl::InvalidArgumentError("link is null; there is no schedule to wait for");
  if (!options.response_bytes) {
    return absl::InvalidArgumentError("response_bytes is empty; it must say how large the answers of a method are");
  }
  if (const Discipline discipline = link->schedule_options().discipline; discipline != Discipline::kRolling) {
    const std::string_view name = DisciplineName(discipline);
    return absl::InvalidArgumentError(absl::StrCat("discipline of the link is ",
                                                   absl::string_view(name.data(), name.size()),
                                                   "; an interceptor can gate requests only, which is rolling"));
  }
  return std::make_unique<GatingInterceptorFactory>(std::move(link), std::move(options));
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> CreateGatedChannel(
    std::shared_ptr<Link> link, const std::string& target, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    GatingOptions options, grpc::ChannelArguments arguments) {
  auto factory = CreateGatingInterceptorFactory(std::move(link), std::move(options));
  if (!factory.ok()) return factory.status();
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> factories;
  factories.push_back(*std::move(factory));
  return grpc::experimental::CreateCustomChannelWithInterceptors(target, credentials, arguments, std::move(factories));
}

}  // namespace sluice

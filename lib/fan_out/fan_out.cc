#include "sluice/fan_out.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "lib/fan_out/fan_out_core.h"
#include "lib/fan_out/fan_out_run.h"
#include "lib/rpc/messages.h"
#include "lib/rpc/worker_channels.h"

namespace sluice {
namespace {

std::vector<FanOutRun::WorkerAsk> WithoutSkipped(std::vector<std::optional<Ask<grpc::ByteBuffer>>> asks) {
  std::vector<FanOutRun::WorkerAsk> kept;
  kept.reserve(asks.size());
  for (size_t worker = 0; worker < asks.size(); ++worker) {
    if (!asks[worker].has_value()) continue;
    std::vector<size_t> workers = {worker};
    workers.insert(workers.end(), asks[worker]->replicas.begin(), asks[worker]->replicas.end());
    kept.push_back({std::move(asks[worker]->request), asks[worker]->response_bytes, std::move(workers)});
  }
  return kept;
}

class EndedCall final : public FanOutCall {
 public:
  void Cancel() override {}
};

}  // namespace

absl::Status FanOut::Validate(const Options& options) {
  if (options.connect_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("connect_timeout is ", absl::FormatDuration(options.connect_timeout), "; it must be above 0"));
  }
  if (options.max_response_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_response_bytes is ", options.max_response_bytes, "; it must be above 0"));
  }
  return WorkerChannels::Validate(options.workers);
}

absl::StatusOr<std::unique_ptr<FanOut>> FanOut::Create(std::shared_ptr<Link> link, Options options) {
  if (!link) return absl::InvalidArgumentError("link is null; create one with Link::Create");
  if (absl::Status valid = Validate(options); !valid.ok()) return valid;
  WorkerChannels channels(options.workers, link->driver().workers(),
                          {.may_hold = link->schedule_options().discipline == Discipline::kGrants,
                           .credentials = options.credentials,
                           .max_response_bytes = options.max_response_bytes,
                           .receive_window = link->receive_window()});
  auto core = std::make_unique<FanOutCore>(std::move(link), std::move(channels));
  return std::unique_ptr<FanOut>(new FanOut(std::move(core), options.connect_timeout));
}

FanOut::FanOut(std::unique_ptr<FanOutCore> core, absl::Duration connect_timeout)
    : core_(std::move(core)), connect_timeout_(connect_timeout) {}

FanOut::~FanOut() = default;

size_t FanOut::workers() const {
  return core_->channels().size();
}

const std::string& FanOut::address(size_t worker) const {
  return core_->channels().address(worker);
}

std::vector<size_t> FanOut::Connect() {
  return core_->Connect(connect_timeout_);
}

std::shared_ptr<FanOutCall> FanOut::Start(const std::string& method, bool server_streaming, Asks asks, MergeBytes merge,
                                          const FanOutOptions& options, Done done) {
  FanOutRun::Spec spec{.method = method,
                       .server_streaming = server_streaming,
                       .asks = WithoutSkipped(std::move(asks)),
                       .merge = std::move(merge),
                       .options = options,
                       .done = std::move(done)};
  if (absl::Status valid = FanOutRun::Validate(spec, core_->channels()); !valid.ok()) {
    spec.done({.status = std::move(valid)});
    return std::make_shared<EndedCall>();
  }
  return FanOutRun::Start(*core_, std::move(spec));
}

FanOutResult FanOut::Await(const std::string& method, bool server_streaming, Asks asks, MergeBytes merge,
                           const FanOutOptions& options) {
  FanOutResult result;
  absl::Notification ended;
  Start(method, server_streaming, std::move(asks), std::move(merge), options, [&](FanOutResult how) {
    result = std::move(how);
    ended.Notify();
  });
  ended.WaitForNotification();
  return result;
}

namespace internal {

grpc::ByteBuffer ToBytes(const google::protobuf::MessageLite& message) {
  return ::sluice::Serialize(message);
}

absl::Status FromBytes(grpc::ByteBuffer& bytes, google::protobuf::MessageLite& message) {
  return ::sluice::Parse(bytes, message);
}

}  // namespace internal
}  // namespace sluice

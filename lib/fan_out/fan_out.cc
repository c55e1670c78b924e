#include "sluice/fan_out.h"

#include <atomic>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/fan_out/fan_out_run.h"
#include "lib/fan_out/fan_out_state.h"
#include "lib/fan_out/fan_out_validate.h"
#include "lib/fan_out/merge_sink.h"
#include "lib/grpc_wire/request.h"
#include "lib/link/callbacks.h"
#include "lib/link/link_loop.h"
#include "lib/link/worker_discovery.h"
#include "lib/link/worker_list.h"
#include "lib/net/asio_executor.h"
#include "lib/net/clock.h"

namespace sluice {
namespace {

using AskOfWorker = std::optional<Ask<std::string>>;

std::shared_ptr<const Metadata> Share(Metadata metadata) {
  return metadata.empty() ? nullptr : std::make_shared<const Metadata>(std::move(metadata));
}

// Frames the requests as they are sent. Runs on the caller's thread, because compression takes time.
void Frame(std::vector<AskOfWorker>& asks, bool compress) {
  for (AskOfWorker& ask : asks) {
    if (ask.has_value()) ask->request = compress ? FrameCompressed(ask->request) : FrameMessage(ask->request);
  }
}

// Makes the asks of the workers that were not skipped. The requests are framed already. The replicas are in the order
// of their history.
std::vector<FanOutRun::Ask> AsksFor(FanOutState& state, const WorkerSet& workers, std::vector<AskOfWorker> asks) {
  std::vector<FanOutRun::Ask> made;
  made.reserve(asks.size());
  for (size_t worker = 0; worker < asks.size(); ++worker) {
    if (!asks[worker].has_value()) continue;
    Ask<std::string>& ask = *asks[worker];
    made.push_back({.request = std::make_shared<const std::string>(std::move(ask.request)),
                    .workers = state.OrderOf(workers, worker, ask.replicas),
                    .primary = worker,
                    .response_bytes = ask.response_bytes,
                    .metadata = Share(std::move(ask.metadata))});
  }
  return made;
}

size_t FailLimit(const FanOutOptions& options, size_t asks) {
  if (options.fail_limit.has_value()) return static_cast<size_t>(*options.fail_limit);
  return options.success_quorum.has_value() ? asks - static_cast<size_t>(*options.success_quorum) : 0;
}

FanOutLogic::Options LimitsOf(FanOutState& state, const FanOutOptions& options, bool server_streaming, size_t asks) {
  const auto count = static_cast<double>(asks);
  state.retries().Earn(count * options.retry_ratio);
  state.hedges().Earn(count * options.hedge_ratio);
  FanOutLogic::Options limits{.deadline = DeadlineAfter(state.link().now(), options.timeout),
                              .fail_limit = FailLimit(options, asks),
                              .server_streaming = server_streaming,
                              .attempt_timeout = options.attempt_timeout,
                              .hedge_after = options.hedge_ratio > 0 ? options.hedge_after : std::nullopt,
                              .retry_on = options.retry_on,
                              .retries = &state.retries(),
                              .hedges = &state.hedges()};
  if (options.success_quorum.has_value()) limits.success_quorum = static_cast<size_t>(*options.success_quorum);
  return limits;
}

// State that the handle of a fan-out shares with the link's thread. Only stop_merging may be used on other threads.
struct Started {
  std::weak_ptr<FanOutRun> run;
  bool cancelled = false;  // before the run began
  const std::shared_ptr<std::atomic<bool>> stop_merging = std::make_shared<std::atomic<bool>>(false);

  void Cancel() {
    cancelled = true;
    if (const auto under_way = run.lock()) under_way->Cancel(absl::CancelledError("the fan-out was cancelled"));
  }
};

class StartedCall final : public FanOutCall {
 public:
  StartedCall(std::weak_ptr<Link> link, std::shared_ptr<Started> started)
      : link_(std::move(link)), started_(std::move(started)) {}

  void Cancel() override {
    started_->stop_merging->store(true);
    if (const auto link = link_.lock()) link->Post([started = started_](LinkLoop&) { started->Cancel(); });
  }

 private:
  const std::weak_ptr<Link> link_;
  const std::shared_ptr<Started> started_;
};

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
  if (options.tls.has_value()) {
    if (absl::Status valid = ValidateTls(*options.tls); !valid.ok()) return valid;
  }
  return ParseWorkerList(options.workers).status();
}

absl::StatusOr<std::unique_ptr<FanOut>> FanOut::Create(std::shared_ptr<Link> link, Options options) {
  if (!link) return absl::InvalidArgumentError("link is null; create one with Link::Create");
  if (absl::Status valid = Validate(options); !valid.ok()) return valid;
  const std::vector<TrafficClass> classes = link->schedule_options().classes;
  if (absl::Status known = CheckTrafficClass(classes, options.traffic_class); !known.ok()) return known;
  std::unique_ptr<FanOut> fan_out(new FanOut(std::move(link), std::move(options), classes));
  absl::Status status;
  fan_out->link_->Await([&](LinkLoop& loop) {
    std::shared_ptr<TlsContext> tls;
    if (fan_out->options_.tls.has_value()) {
      auto found = loop.workers().FindTls(*fan_out->options_.tls);
      status = found.status();
      if (!found.ok()) return;
      tls = *std::move(found);
    }
    fan_out->state_ = std::make_unique<FanOutState>(loop, fan_out->link_->callbacks(), std::move(tls));
    fan_out->state_->SetOnAccess(fan_out->options_.on_access);
    fan_out->state_->SetWorkers(fan_out->addresses_);
  });
  if (!status.ok()) return status;
  WorkerList list = *ParseWorkerList(fan_out->options_.workers);
  const bool looks_up = list.NeedsLookUps();
  const auto known = std::make_shared<std::promise<void>>();
  fan_out->SetWorkers(std::move(list), [known] { known->set_value(); });
  if (looks_up) known->get_future().wait_until(DeadlineAfter(fan_out->options_.connect_timeout));
  return fan_out;
}

FanOut::FanOut(std::shared_ptr<Link> link, Options options, std::vector<TrafficClass> classes)
    : link_(std::move(link)),
      options_(std::move(options)),
      classes_(std::move(classes)),
      addresses_(std::make_shared<const std::vector<std::string>>()) {}

FanOut::~FanOut() {
  if (state_ == nullptr) return;
  const absl::Status may_wait = link_->CheckMayWait("~FanOut before its calls and their `done` have ended");
  const auto idle = std::make_shared<std::promise<void>>();
  link_->Post([this, idle](LinkLoop&) {
    discovery_.reset();
    state_->Close(absl::CancelledError("the FanOut was destroyed"), [idle] { idle->set_value(); });
  });
  if (!may_wait.ok()) {
    // On the link's thread it is not even closing yet.
    bool closed = false;
    link_->Await([&](LinkLoop&) { closed = state_->HasClosed(); });
    if (!closed) AbortWith(may_wait);
  }
  idle->get_future().wait();
  link_->Await([this](LinkLoop&) { state_.reset(); });
}

FanOut::Addresses FanOut::addresses() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return addresses_;
}

size_t FanOut::workers() const {
  return addresses()->size();
}

std::string FanOut::address(size_t worker) const {
  const Addresses known = addresses();
  return worker < known->size() ? (*known)[worker] : "";
}

absl::Status FanOut::UpdateWorkers(const std::vector<std::string>& workers) {
  absl::StatusOr<WorkerList> list = ParseWorkerList(workers);
  if (!list.ok()) return list.status();
  SetWorkers(*std::move(list), nullptr);
  return absl::OkStatus();
}

// Posts under the lock, so that the last update is also applied last.
void FanOut::SetWorkers(WorkerList list, std::function<void()> on_looked_up) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // The list has not changed. Starting again would discard the addresses that were found.
  if (list_ != nullptr && *list_ == list) return;
  list_ = std::make_unique<WorkerList>(list);
  look_ups_ = absl::OkStatus();
  const uint64_t update = ++updates_;
  if (!list.NeedsLookUps()) {
    addresses_ = std::make_shared<const std::vector<std::string>>(std::move(list.fixed));
    link_->Post([this, addresses = addresses_](LinkLoop&) {
      discovery_.reset();
      state_->SetWorkers(addresses);
    });
    return;
  }
  // The previous workers stay until the names have been looked up.
  link_->Post([this, update, list = std::move(list), on_looked_up = std::move(on_looked_up)](LinkLoop& loop) {
    WorkerDiscovery::Options options{.list = list, .on_workers = {}, .on_state = {}};
    options.on_workers = [this, update, on_looked_up](std::vector<std::string> workers) mutable {
      OnFound(update, std::move(workers));
      if (on_looked_up) std::exchange(on_looked_up, nullptr)();
    };
    options.on_state = [this](const absl::Status& state) {
      const std::lock_guard<std::mutex> state_lock(mutex_);
      look_ups_ = state;
    };
    discovery_ = std::make_unique<WorkerDiscovery>(loop.executor(), loop.timers(), loop.metrics(), std::move(options));
  });
}

// Runs on the link's thread. If a later update has been made, this result is dropped.
void FanOut::OnFound(uint64_t update, std::vector<std::string> workers) {
  if (workers.empty()) return;
  const auto addresses = std::make_shared<const std::vector<std::string>>(std::move(workers));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (update != updates_) return;
    addresses_ = addresses;
  }
  state_->SetWorkers(addresses);
}

absl::Status FanOut::NoWorkers() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (look_ups_.ok()) return absl::UnavailableError("no worker is known yet");
  return absl::UnavailableError(absl::StrCat("no worker is known yet: ", look_ups_.message()));
}

std::vector<size_t> FanOut::Connect() {
  // Unlike a call, it needs no callback thread.
  if (link_->executor().IsThisThread()) AbortWith(link_->CheckMayWait("FanOut::Connect"));
  const auto unconnected = std::make_shared<std::promise<std::vector<size_t>>>();
  link_->Post([this, unconnected](LinkLoop&) {
    state_->Connect(options_.connect_timeout,
                    [unconnected](std::vector<size_t> workers) { unconnected->set_value(std::move(workers)); });
  });
  return unconnected->get_future().get();
}

std::shared_ptr<FanOutCall> FanOut::Start(const std::string& method, bool server_streaming, Asks asks, MergeBytes merge,
                                          const FanOutOptions& options, Done done) {
  if (done == nullptr) done = [](const FanOutResult&) {};
  absl::Status startable;
  if (asks.workers == nullptr) {
    startable = absl::InvalidArgumentError("map: is empty; give a function that returns the request for a worker");
  } else if (merge == nullptr) {
    startable = absl::InvalidArgumentError("merge: is empty; give a function that takes a response");
  } else if (asks.workers->empty()) {
    startable = NoWorkers();
  } else {
    startable = ValidateFanOut(method, asks.asks, options);
  }
  startable.Update(CheckTrafficClass(classes_, options.traffic_class));
  if (!startable.ok()) {
    done({.status = std::move(startable)});
    return std::make_shared<EndedCall>();
  }
  Frame(asks.asks, options.compress_requests);
  const std::string& class_name = options.traffic_class.empty() ? options_.traffic_class : options.traffic_class;
  const size_t traffic_class = *TrafficClassIndex(classes_, class_name);
  auto started = std::make_shared<Started>();
  link_->Post([this, started, method, server_streaming, traffic_class, asks = std::move(asks), merge = std::move(merge),
               options, done = std::move(done)](LinkLoop&) mutable {
    const std::shared_ptr<const WorkerSet> workers = state_->SetOf(asks.workers);
    auto sink = std::make_shared<MergeSink>(*state_, std::move(merge), std::move(done),
                                            MergeSink::Options{.max_message_bytes = options_.max_response_bytes,
                                                               .keep_response_metadata = options.keep_response_metadata,
                                                               .stop_merging = started->stop_merging});
    FanOutRun::Spec spec{.path = method,
                         .server_streaming = server_streaming,
                         .may_idle = server_streaming,
                         .traffic_class = traffic_class,
                         .workers = workers,
                         .asks = AsksFor(*state_, *workers, std::move(asks.asks)),
                         .metadata = Share(options.metadata),
                         .gzip_requests = options.compress_requests,
                         .max_message_bytes = options_.max_response_bytes,
                         .memory = std::make_shared<CallbackMemory::Account>(state_->link().callback_memory()),
                         .limits = {},
                         .hedge_after_quantile = options.hedge_after_quantile};
    spec.limits = LimitsOf(*state_, options, server_streaming, spec.asks.size());
    if (options.hedge_ratio == 0) spec.hedge_after_quantile.reset();
    const auto run = FanOutRun::Make(*state_, std::move(spec), sink);
    sink->SetRun(run);
    started->run = run;
    run->Begin();
    if (started->cancelled) started->Cancel();
  });
  return std::make_shared<StartedCall>(link_, std::move(started));
}

FanOutResult FanOut::Await(const std::string& method, bool server_streaming, Asks asks, MergeBytes merge,
                           const FanOutOptions& options) {
  if (absl::Status may_wait = link_->CheckMayWait("FanOut::Call"); !may_wait.ok()) return {.status = may_wait};
  const auto result = std::make_shared<std::promise<FanOutResult>>();
  Start(method, server_streaming, std::move(asks), std::move(merge), options,
        [result](FanOutResult how) { result->set_value(std::move(how)); });
  return result->get_future().get();
}

namespace internal {

std::string ToBytes(const google::protobuf::MessageLite& message) {
  return message.SerializeAsString();
}

absl::Status FromBytes(std::string& bytes, google::protobuf::MessageLite& message) {
  if (message.ParseFromString(bytes)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the response is not a ", message.GetTypeName()));
}

}  // namespace internal
}  // namespace sluice

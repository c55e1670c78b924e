#include "aggregator/aggregator_server.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>

#include "absl/types/span.h"
#include "lib/cli/access_config.h"
#include "lib/cli/descriptor_limit.h"
#include "lib/cli/link_log.h"
#include "lib/cli/logging.h"
#include "lib/link/link_loop.h"
#include "lib/link/link_pages.h"
#include "lib/net/clock.h"

namespace sluice {
namespace {

void LogUnconnected(const std::vector<std::pair<std::string, absl::Status>>& workers) {
  constexpr size_t kNamed = 5;
  for (const auto& [address, why] : absl::MakeConstSpan(workers).first(std::min(kNamed, workers.size()))) {
    Log(LogLevel::kWarning, "worker is not connected; it is tried again when it is needed",
        {{"worker", address}, {"reason", why}});
  }
  if (workers.size() > kNamed) {
    Log(LogLevel::kWarning, "more workers are not connected", {{"count", workers.size() - kNamed}});
  }
}

void LogLookUps(const absl::Status& state) {
  if (state.ok()) return Log(LogLevel::kInfo, "workers can be looked up again");
  Log(LogLevel::kWarning, "workers cannot be looked up; what is known stays", {{"reason", state}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<AggregatorServer>> AggregatorServer::Start(const AggregatorOptions& options,
                                                                          IoThread& io_thread) {
  RaiseDescriptorLimit();
  auto link = CreateLoggedLink(options.link);
  if (!link.ok()) return link.status();
  std::unique_ptr<AggregatorServer> server(new AggregatorServer(*std::move(link), options, io_thread));
  absl::Status admin = server->StartAdmin(options, io_thread);
  if (!admin.ok()) return admin;
  server->FindWorkers(options);
  if (absl::Status serving = server->StartServing(options); !serving.ok()) return serving;
  return server;
}

AggregatorServer::AggregatorServer(std::shared_ptr<Link> link, const AggregatorOptions& options, IoThread& io_thread)
    : link_(std::move(link)),
      io_context_(io_thread.context()),
      config_metrics_(link_->registry()),
      reader_(io_context_),
      worker_list_(options.workers),
      reader_options_(options.reader),
      access_(std::make_shared<AccessControl>(options.rpc_server.access, link_->registry(), RefusedCallLog())),
      service_([this] { return reader_.Get(); }, options.read_memory_bytes, access_) {
  threads_.Add("thread of the link", LinkThread(*link_));
  if (options.mid_level.has_value()) {
    mid_level_ = std::make_unique<MidLevel>(
        *options.mid_level, [this] { return reader_.Get(); }, link_->registry(), io_thread, access_);
  }
}

AggregatorServer::~AggregatorServer() {
  StopFollowing();
  // A last update of the discovery may still be on its way to SetWorkers.
  absl::Notification last;
  boost::asio::dispatch(io_context_, [&last] { last.Notify(); });
  last.WaitForNotification();
}

// Waits for at most twice the connect timeout: once for the look-up, and once for the connections.
void AggregatorServer::FindWorkers(const AggregatorOptions& options) {
  if (options.workers.open.has_value()) {
    FollowWorkers();
    looked_up_.WaitForNotificationWithTimeout(options.reader.connect_timeout);
  } else {
    MakeReader();
  }
  if (const std::shared_ptr<BlockReader> reader = reader_.Get()) LogUnconnected(reader->Connect());
}

absl::Status AggregatorServer::StartServing(const AggregatorOptions& options) {
  RpcServer::Options rpc_options = options.rpc_server;
  rpc_options.ready = reader_.Get() != nullptr;
  rpc_options.on_refused = RefusedConnectionLog();
  rpc_options.on_refused_certificate = RefusedCertificateLog();
  std::vector<grpc::Service*> services = {&service_};
  if (mid_level_) services.push_back(&mid_level_->service());
  auto rpc_server = RpcServer::Start(rpc_options, services);
  if (!rpc_server.ok()) return rpc_server.status();
  rpc_server_ = *std::move(rpc_server);
  absl::Notification told;
  boost::asio::post(io_context_, [&] {
    serving_ = true;
    threads_.Add("accepting thread",
                 [this](std::function<void()> task) { rpc_server_->PostToAccepting(std::move(task)); });
    // The reader may have been set since the check above.
    if (const std::shared_ptr<BlockReader> reader = reader_.Get()) {
      reader->ConnectInBackground();
      rpc_server_->SetReady(true);
    }
    told.Notify();
  });
  told.WaitForNotification();
  return absl::OkStatus();
}

void AggregatorServer::FollowWorkers() {
  const auto set_on_io_thread = [this, follow = ++follows_](std::vector<std::string> workers) {
    boost::asio::post(io_context_, [this, follow, workers = std::move(workers)] {
      if (follow == follows_) SetWorkers(workers);
      if (!looked_up_.HasBeenNotified()) looked_up_.Notify();
    });
  };
  link_->Await([&](LinkLoop& loop) {
    discovery_ = std::make_unique<WorkerDiscovery>(
        loop.executor(), loop.timers(), loop.metrics(),
        WorkerDiscovery::Options{.list = worker_list_, .on_workers = set_on_io_thread, .on_state = LogLookUps});
  });
}

void AggregatorServer::StopFollowing() {
  link_->Await([this](LinkLoop&) { discovery_.reset(); });
}

void AggregatorServer::SetWorkers(const std::vector<std::string>& workers) {
  if (workers.empty()) {
    Log(LogLevel::kWarning, "no worker is known to the name server yet",
        {{"first", worker_list_.open->Address(0)}, {"known_before", reader_options_.workers.size()}});
    return;
  }
  Log(LogLevel::kInfo, "workers", {{"count", workers.size()}, {"before", reader_options_.workers.size()}});
  reader_options_.workers = workers;
  MakeReader();
}

// Creates a reader that keeps the connections of the previous one. The options were validated with the config.
void AggregatorServer::MakeReader() {
  const std::shared_ptr<BlockReader> before = reader_.Get();
  auto reader = before ? before->Successor(reader_options_) : BlockReader::Create(link_, reader_options_);
  if (!reader.ok()) {
    Log(LogLevel::kError, "these workers cannot be read from", {{"reason", reader.status()}});
    return;
  }
  if (serving_) (*reader)->ConnectInBackground();
  service_.SetSegmentBytes(reader_options_.segment_bytes);
  reader_.Replace(*std::move(reader));
  if (serving_) rpc_server_->SetReady(true);
}

absl::Status AggregatorServer::Reconfigure(const AggregatorOptions& options) {
  // Validate first: if the reader cannot be made, the link must not change either.
  if (absl::Status valid = ValidateReader(options, ReaderFiles::kRead); !valid.ok()) return valid;
  if (absl::Status changed = link_->Reconfigure(options.link); !changed.ok()) return changed;
  std::vector<std::string> workers = std::move(reader_options_.workers);
  reader_options_ = options.reader;
  const bool same_workers = options.workers == worker_list_;
  worker_list_ = options.workers;
  // Keep the known workers until the name server has responded.
  if (same_workers || worker_list_.open.has_value()) reader_options_.workers = std::move(workers);
  if (!same_workers) {
    StopFollowing();
    ++follows_;
  }
  if (!reader_options_.workers.empty()) MakeReader();
  if (!same_workers && worker_list_.open.has_value()) FollowWorkers();
  return absl::OkStatus();
}

std::vector<const prometheus::Collectable*> AggregatorServer::Metrics(const std::string& level) {
  std::vector<const prometheus::Collectable*> metrics = {&link_->registry(), &link_->gauges(), &process_metrics_};
  if (mid_level_) metrics.push_back(&mid_level_->tcp_metrics());
  if (level.empty()) return metrics;
  labelled_.reserve(metrics.size());  // pointers into it must stay valid
  for (const prometheus::Collectable*& metric : metrics) metric = &labelled_.emplace_back(*metric, "level", level);
  return metrics;
}

absl::Status AggregatorServer::StartAdmin(const AggregatorOptions& options, IoThread& io_thread) {
  if (options.admin.empty()) return absl::OkStatus();
  auto admin = AdminServer::Start(io_thread.context(), {.listen = options.admin,
                                                        .field = "admin",
                                                        .name = "sluice-aggregator",
                                                        .collectables = Metrics(options.level),
                                                        .live = [this] { return Live(); },
                                                        .ready = [this] { return Ready(); },
                                                        .pages = LinkPages(*link_),
                                                        .passed = options.rpc_server.passed});
  if (!admin.ok()) return admin.status();
  admin_ = *std::move(admin);
  return absl::OkStatus();
}

// A drain ends the accepting thread.
absl::Status AggregatorServer::Live() {
  return draining_ ? absl::OkStatus() : threads_.Look(Now());
}

absl::Status AggregatorServer::Ready() const {
  if (draining_) return absl::UnavailableError("draining");
  if (!serving_) return absl::UnavailableError("not listening yet");
  if (absl::Status room = rpc_server_->CheckRoom(); !room.ok()) return room;
  return reader_.Get() ? absl::OkStatus() : absl::UnavailableError("no worker is known yet");
}

void AggregatorServer::Drain() {
  draining_ = true;
  rpc_server_->Drain();
}

}  // namespace sluice

#include "aggregator/aggregator_server.h"

#include <utility>
#include <vector>

#include "lib/cli/logging.h"
#include "lib/rpc/link_driver.h"
#include "lib/telemetry/status_page.h"
#include "lib/telemetry/worker_summary.h"

namespace sluice {
namespace {

void LogUnconnected(const std::vector<std::string>& addresses) {
  constexpr size_t kNamed = 5;
  for (size_t i = 0; i < addresses.size() && i < kNamed; ++i) {
    Log(LogLevel::kWarning, "worker does not answer; it is tried again when it is needed", {{"worker", addresses[i]}});
  }
  if (addresses.size() > kNamed)
    Log(LogLevel::kWarning, "more workers do not answer", {{"count", addresses.size() - kNamed}});
}

void LogBudget(int64_t before_bytes, const BudgetStep& step) {
  Log(LogLevel::kInfo, "budget",
      {{"decision", BudgetDecisionName(step.decision)},
       {"reason", step.reason},
       {"from", before_bytes},
       {"to", step.state.budget_bytes},
       {"ceiling", step.state.ceiling_bytes}});
}

AdminServer::Page WorkersPage(Link& link) {
  return {.content_type = "application/json",
          .body = [&link] { return SlowestWorkersJson(link.driver().workers().Summaries()); }};
}

}  // namespace

absl::StatusOr<std::unique_ptr<AggregatorServer>> AggregatorServer::Start(const AggregatorOptions& options,
                                                                          IoThread& io_thread) {
  Link::Options link_options = options.link;
  link_options.budget.on_change = LogBudget;
  auto link = Link::Create(std::move(link_options));
  if (!link.ok()) return link.status();
  if (options.link.watch_connections && !(*link)->telemetry_status().ok()) {
    Log(LogLevel::kWarning, "losses cannot be seen, and the budget stays as it is",
        {{"reason", (*link)->telemetry_status()}});
  }
  auto reader = BlockReader::Create(*link, options.reader);
  if (!reader.ok()) return reader.status();
  std::unique_ptr<AggregatorServer> server(new AggregatorServer(*std::move(link), *std::move(reader)));
  if (options.mid_level.has_value()) {
    server->mid_level_ = std::make_unique<MidLevel>(*options.mid_level, options.reader.block_timeout, *server->reader_,
                                                    server->link_->registry(), io_thread);
  }
  absl::Status admin = server->StartAdmin(options, io_thread);
  if (!admin.ok()) return admin;
  LogUnconnected(server->reader_->Connect());
  std::vector<grpc::Service*> services = {&server->service_};
  if (server->mid_level_) services.push_back(&server->mid_level_->service());
  auto rpc_server = RpcServer::Start(options.rpc_server, services);
  if (!rpc_server.ok()) return rpc_server.status();
  server->rpc_server_ = *std::move(rpc_server);
  return server;
}

AggregatorServer::AggregatorServer(std::shared_ptr<Link> link, std::unique_ptr<BlockReader> reader)
    : link_(std::move(link)), reader_(std::move(reader)), service_(*reader_) {}

std::vector<const prometheus::Collectable*> AggregatorServer::Metrics(const std::string& level) {
  std::vector<const prometheus::Collectable*> metrics = {&link_->registry(), &link_->gauges(), &process_metrics_};
  if (mid_level_) metrics.push_back(&mid_level_->tcp_metrics());
  if (level.empty()) return metrics;
  labelled_.reserve(metrics.size());  // they are pointed to
  for (const prometheus::Collectable*& metric : metrics) metric = &labelled_.emplace_back(*metric, "level", level);
  return metrics;
}

absl::Status AggregatorServer::StartAdmin(const AggregatorOptions& options, IoThread& io_thread) {
  if (options.admin.empty()) return absl::OkStatus();
  auto admin =
      AdminServer::Start(io_thread.context(), {.listen = options.admin,
                                               .name = "sluice-aggregator",
                                               .collectables = Metrics(options.level),
                                               .health = [this] { return Health(); },
                                               .pages = {{"/", StatusPage()}, {"/workers.json", WorkersPage(*link_)}}});
  if (!admin.ok()) return admin.status();
  admin_ = *std::move(admin);
  return absl::OkStatus();
}

absl::Status AggregatorServer::Health() const {
  return draining_ ? absl::UnavailableError("draining") : absl::OkStatus();
}

void AggregatorServer::Drain() {
  draining_ = true;
  rpc_server_->Drain();
}

}  // namespace sluice

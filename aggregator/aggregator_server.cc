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

void LogShare(const absl::Status& state) {
  if (state.ok()) return Log(LogLevel::kInfo, "the budget of the link is leased");
  Log(LogLevel::kWarning, "no lease of the shared link; its safe share is used", {{"reason", state}});
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
  if (link_options.share.has_value()) link_options.share->on_state = LogShare;
  auto link = Link::Create(std::move(link_options));
  if (!link.ok()) return link.status();
  if (options.link.watch_connections && !(*link)->telemetry_status().ok()) {
    Log(LogLevel::kWarning, "losses cannot be seen, and the budget stays as it is",
        {{"reason", (*link)->telemetry_status()}});
  }
  auto reader = BlockReader::Create(*link, options.reader);
  if (!reader.ok()) return reader.status();
  std::unique_ptr<AggregatorServer> server(new AggregatorServer(*std::move(link), *std::move(reader)));
  absl::Status admin = server->StartAdmin(options.admin, io_thread);
  if (!admin.ok()) return admin;
  LogUnconnected(server->reader_->Connect());
  auto rpc_server = RpcServer::Start(options.rpc_server, {&server->service_});
  if (!rpc_server.ok()) return rpc_server.status();
  server->rpc_server_ = *std::move(rpc_server);
  return server;
}

AggregatorServer::AggregatorServer(std::shared_ptr<Link> link, std::unique_ptr<BlockReader> reader)
    : link_(std::move(link)), reader_(std::move(reader)), service_(*reader_) {}

absl::Status AggregatorServer::StartAdmin(const std::string& listen, IoThread& io_thread) {
  if (listen.empty()) return absl::OkStatus();
  auto admin = AdminServer::Start(io_thread.context(),
                                  {.listen = listen,
                                   .name = "sluice-aggregator",
                                   .collectables = {&link_->registry(), &link_->gauges(), &process_metrics_},
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

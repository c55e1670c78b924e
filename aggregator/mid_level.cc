#include "aggregator/mid_level.h"

#include <utility>

#include "lib/cli/logging.h"

namespace sluice {
namespace {

constexpr absl::Duration kReportPeriod = absl::Milliseconds(250);

}  // namespace

MidLevel::MidLevel(const Options& options, const ReaderSource& reader, prometheus::Registry& registry,
                   IoThread& io_thread)
    : worker_metrics_(registry),
      metrics_(registry),
      cache_(reader, static_cast<uint64_t>(options.cache_bytes), metrics_),
      server_(cache_, worker_metrics_, tcp_reports_, {.deadline_reserve = options.deadline_reserve}) {
  WatchConnections(io_thread);
}

void MidLevel::WatchConnections(IoThread& io_thread) {
  auto sampler =
      TcpSampler::Start(io_thread.context(), {.period = kReportPeriod, .on_sample = [this](auto, auto sockets) {
                                                tcp_metrics_.Update(sockets);
                                                tcp_reports_.Update(sockets);
                                              }});
  if (sampler.ok()) {
    tcp_sampler_ = *std::move(sampler);
  } else {
    Log(LogLevel::kWarning, "what TCP does cannot be seen", {{"reason", sampler.status()}});
  }
}

}  // namespace sluice

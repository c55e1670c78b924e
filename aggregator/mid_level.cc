#include "aggregator/mid_level.h"

#include <utility>

#include "lib/cli/logging.h"

namespace sluice {

MidLevel::MidLevel(const Options& options, const ReaderSource& reader, prometheus::Registry& registry,
                   IoThread& io_thread, std::shared_ptr<AccessControl> access)
    : worker_metrics_(registry),
      metrics_(registry),
      answer_watch_(io_thread),
      cache_(reader, static_cast<uint64_t>(options.cache_bytes), metrics_),
      server_(cache_, worker_metrics_, answer_watch_.reports(),
              {.deadline_reserve = options.deadline_reserve, .access = std::move(access)}) {
  if (!answer_watch_.status().ok()) {
    Log(LogLevel::kWarning, "what TCP does cannot be seen", {{"reason", answer_watch_.status()}});
  }
}

}  // namespace sluice

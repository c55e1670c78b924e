#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "sluice/budget_control.h"

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "lib/rpc/link_driver.h"
#include "lib/telemetry/aggregator_metrics.h"
#include "lib/telemetry/tcp_sampler.h"

namespace sluice {

// Watches the connections of one link while calls are made over it, on the link's IO thread: counts what was lost, and
// keeps the budget where nothing is. One a Link; thread-safe.
class LinkMonitor {
 public:
  using OnBudgetChange = std::function<void(int64_t before_bytes, const BudgetStep& step)>;

  // `on_change` is called on the IO thread and may be null. The driver and the metrics outlive the monitor.
  LinkMonitor(LinkDriver& driver, const BudgetBounds& bounds, bool watch, OnBudgetChange on_change);
  ~LinkMonitor();  // not on the IO thread
  LinkMonitor(const LinkMonitor&) = delete;
  LinkMonitor& operator=(const LinkMonitor&) = delete;

  // Not OK: connections are not watched, so nothing is inferred, and the budget stays.
  const absl::Status& status() const { return status_; }

  // From now on the budget is this one.
  absl::Status FixBudget(int64_t budget_bytes);
  // From now on it stays within these: where it starts anew when the start is another one, else where it is.
  void Reconfigure(const BudgetBounds& bounds);
  void FillGauges(AggregatorGauges& gauges) const;

 private:
  void ApplyBudget();
  bool Active();
  void OnSample(TimePoint now, absl::Span<const TcpSocket> sockets);
  void CountSight(const LinkSight& sight);

  LinkDriver& driver_;
  const OnBudgetChange on_change_;

  // IO thread only.
  int64_t ended_before_look_ = 0;
  int64_t ended_calls_ = 0;  // that were counted as answers

  mutable absl::Mutex mutex_;
  BudgetBounds bounds_ ABSL_GUARDED_BY(mutex_);
  BudgetState budget_ ABSL_GUARDED_BY(mutex_);
  LinkSight sight_ ABSL_GUARDED_BY(mutex_);

  absl::Status status_;
  std::unique_ptr<TcpSampler> sampler_;  // the last: it calls what is above
};

}  // namespace sluice

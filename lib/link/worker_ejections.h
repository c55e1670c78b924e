#pragma once

#include <cstddef>
#include <vector>

#include "lib/link/outlier_ejection.h"

namespace sluice {

class LinkLoop;

// The ejections of workers that replace one another, and their effect on the metrics and the WorkerTable of the link.
// Workers are numbered by Worker::row. There is one for each FanOut, BlockReader, and target of a proxy. Used on the
// link's thread only.
class WorkerEjections {
 public:
  explicit WorkerEjections(LinkLoop& loop);  // the loop must outlive it
  ~WorkerEjections();
  WorkerEjections(const WorkerEjections&) = delete;
  WorkerEjections& operator=(const WorkerEjections&) = delete;

  // Call it before the workers that are removed are released.
  void SetWorkers(const std::vector<size_t>& workers);
  void OnEnded(const OutlierEjection::Call& call);
  bool IsAvoided(size_t worker) const;
  void OnChosen(size_t worker);

 private:
  void Apply(const OutlierEjection::Changes& changes);

  LinkLoop& loop_;
  OutlierEjection ejection_;
};

}  // namespace sluice

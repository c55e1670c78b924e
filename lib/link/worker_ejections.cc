#include "lib/link/worker_ejections.h"

#include "lib/link/link_loop.h"

namespace sluice {

WorkerEjections::WorkerEjections(LinkLoop& loop) : loop_(loop), ejection_(loop.outlier_detection()) {}

WorkerEjections::~WorkerEjections() {
  SetWorkers({});
}

void WorkerEjections::SetWorkers(const std::vector<size_t>& workers) {
  OutlierEjection::Changes changes;
  ejection_.SetWorkers(workers, changes);
  Apply(changes);
}

void WorkerEjections::OnEnded(const OutlierEjection::Call& call) {
  OutlierEjection::Changes changes;
  ejection_.OnEnded(loop_.now(), call, changes);
  Apply(changes);
}

bool WorkerEjections::IsAvoided(size_t worker) const {
  return ejection_.ejected() > 0 && ejection_.IsAvoided(loop_.now(), worker);
}

void WorkerEjections::OnChosen(size_t worker) {
  if (ejection_.ejected() > 0) ejection_.OnChosen(loop_.now(), worker);
}

// A failed probe ejects a worker that is ejected already.
void WorkerEjections::Apply(const OutlierEjection::Changes& changes) {
  for (const OutlierEjection::Change& change : changes) {
    if (!change.ejected.has_value()) {
      loop_.worker_table().OnReturned(change.worker);
      continue;
    }
    loop_.metrics().CountEjection(*change.ejected);
    if (change.ejected != EjectionReason::kProbe) loop_.worker_table().OnEjected(change.worker);
  }
}

}  // namespace sluice

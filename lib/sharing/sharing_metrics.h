#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/registry.h"

namespace sluice {

// Why a process was refused; label values are in sharing_metrics.cc, in this order.
enum class SharingRefusal { kUid, kProtocol, kFull };

// The counters of one application.
struct ApplicationCounters {
  prometheus::Counter* received_bytes = nullptr;
  prometheus::Counter* lease_changes = nullptr;
  prometheus::Counter* expirations = nullptr;
  std::vector<prometheus::Counter*> class_received_bytes;  // of its classes, in the order of the hello
};

// The counters of a LeaseServer; one object for each server. Counting is thread-safe; the other functions are for its
// thread.
class SharingMetrics {
 public:
  explicit SharingMetrics(prometheus::Registry& registry);

  // Returns the label of an application: its own name, or "other" if the number of labels would be too large.
  std::string LabelOf(const std::string& application);
  // Same, of a class of traffic.
  std::string LabelOfClass(const std::string& name);
  ApplicationCounters CountersOf(const std::string& label, const std::vector<std::string>& class_labels);
  void CountBreaches(int64_t breaches) { invariant_breaches_.Increment(static_cast<double>(breaches)); }
  void CountRefusal(SharingRefusal reason) { refusals_[static_cast<size_t>(reason)]->Increment(); }

 private:
  prometheus::Family<prometheus::Counter>& received_bytes_;
  prometheus::Family<prometheus::Counter>& lease_changes_;
  prometheus::Family<prometheus::Counter>& expirations_;
  prometheus::Family<prometheus::Counter>& class_received_bytes_;
  const std::array<prometheus::Counter*, 3> refusals_;
  prometheus::Counter& invariant_breaches_;
  std::set<std::string> labels_;
  std::set<std::string> class_labels_;
};

}  // namespace sluice

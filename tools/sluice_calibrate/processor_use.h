#pragma once

#include "absl/time/time.h"

namespace sluice {

// How much the processors have worked since it was made. A plain value.
class ProcessorUse {
 public:
  ProcessorUse();

  double ProcessShare() const;  // of one processor, that this process used
  double HostShare() const;     // of all processors of this host, that anybody used; 0 where the kernel does not tell

 private:
  struct Reading {
    absl::Duration process;
    absl::Duration clock;
    double host_busy_ticks = 0;
    double host_ticks = 0;
  };
  static Reading Read();

  const Reading before_;
};

}  // namespace sluice

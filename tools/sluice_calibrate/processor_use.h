#pragma once

#include "absl/time/time.h"

namespace sluice {

// The CPU use since this object was created. A plain value.
class ProcessorUse {
 public:
  ProcessorUse();

  double ProcessShare() const;  // share of one CPU that this process used
  // Share of all CPUs of this host in use by any process; 0 if the kernel does not report it.
  double HostShare() const;

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

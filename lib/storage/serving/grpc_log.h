#pragma once

#include <grpc/support/log.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/cli/logging.h"

namespace sluice {

// Makes gRPC log by Log instead of its own lines on stderr. For programs: a library leaves gRPC's log to its
// application. Call it once, before other threads use gRPC.
inline void LogWhatGrpcLogs() {
  gpr_set_log_function([](gpr_log_func_args* line) {
    const LogLevel level = line->severity == GPR_LOG_SEVERITY_ERROR  ? LogLevel::kError
                           : line->severity == GPR_LOG_SEVERITY_INFO ? LogLevel::kInfo
                                                                     : LogLevel::kDebug;
    absl::string_view file = line->file;
    file.remove_prefix(file.rfind('/') + 1);
    Log(level, line->message, {{"grpc", absl::StrCat(file, ":", line->line)}});
  });
}

}  // namespace sluice

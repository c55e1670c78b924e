#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <grpc/support/log.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/cli/log_limit.h"
#include "lib/cli/logging.h"

namespace sluice {

// Makes gRPC log by Log instead of its own lines on stderr. For programs: a library leaves gRPC's log to its
// application. Call it once, before other threads use gRPC.
//
// Any client can cause gRPC's errors, such as those of failed handshakes. So lines that differ in numbers only, such as
// ports, are one line in ten seconds, with the number of those that were left out before.
inline void LogWhatGrpcLogs() {
  gpr_set_log_function([](gpr_log_func_args* line) {
    // Never destroyed: gRPC's threads may log while the process ends.
    static SharedLogLimit& errors = *new SharedLogLimit(std::chrono::seconds(10), /*max_keys=*/64);
    const LogLevel level = line->severity == GPR_LOG_SEVERITY_ERROR  ? LogLevel::kError
                           : line->severity == GPR_LOG_SEVERITY_INFO ? LogLevel::kInfo
                                                                     : LogLevel::kDebug;
    absl::string_view file = line->file;
    file.remove_prefix(file.rfind('/') + 1);
    const std::string place = absl::StrCat(file, ":", line->line);
    if (level != LogLevel::kError) return Log(level, line->message, {{"grpc", place}});
    std::string kind = absl::StrCat(place, " ", line->message);
    std::erase_if(kind, absl::ascii_isdigit);
    if (const std::optional<int64_t> unlogged = errors.Take(kind)) {
      Log(level, line->message, {{"grpc", place}, {"unlogged", *unlogged}});
    }
  });
}

}  // namespace sluice

#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

// Structured logs: one logfmt line an event, on stderr, safe to call from every thread.
//   ts=2024-05-01T12:00:00.123Z level=info msg="worker lost" worker=10.0.0.7:7000 status="UNAVAILABLE: reset"
namespace sluice {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogField {
  LogField(std::string_view key, std::string_view value) : key(key), value(value) {}
  LogField(std::string_view key, const char* value) : key(key), value(value) {}
  LogField(std::string_view key, bool value) : key(key), value(value ? "true" : "false") {}
  LogField(std::string_view key, absl::Duration value) : key(key), value(absl::FormatDuration(value)) {}
  LogField(std::string_view key, const absl::Status& value) : key(key), value(value.ToString()) {}
  template <class T>
  requires std::is_arithmetic_v<T> &&(!std::same_as<T, bool>)LogField(std::string_view key, T value)
      : key(key), value(absl::StrCat(value)) {}

  std::string_view key;  // a word of [a-z0-9_]; not escaped
  std::string value;
};

void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

// Parses "debug", "info", "warning" or "error"; empty is info. Otherwise returns InvalidArgument.
absl::StatusOr<LogLevel> ParseLogLevel(std::string_view name);
// Sets the level of the whole process; errors as above.
absl::Status SetLogLevel(std::string_view name);

// Sets this process's level of an aggregation tree, for the whole process: every later line contains it as
// "tree_level". It is a word of [A-Za-z0-9._-], empty for none. ("level" is the severity of a line.)
void SetLogTreeLevel(std::string_view level);

// Returns the text after the level in a line: msg=... key=value ... Values are quoted if necessary, and every byte that
// would end the line or the value is escaped.
std::string FormatLogfmt(std::string_view message, std::initializer_list<LogField> fields);

// Sets the format of the lines and their output, stderr. RunProgram calls it once, before any thread starts.
void StartLogging();

}  // namespace sluice

#include "lib/cli/logging.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "absl/strings/str_format.h"

namespace sluice {
namespace {

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

bool NeedsQuotes(std::string_view value) {
  return value.empty() || std::any_of(value.begin(), value.end(), [](char c) {
           return c == ' ' || c == '=' || c == '"' || c == '\\' || IsControl(c);
         });
}

// Uses the escapes of JSON strings, which logfmt parsers decode. absl's CEscape writes \x.., which they do not decode.
void AppendQuoted(std::string_view value, std::string& line) {
  line += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (c == '\n') {
      line += "\\n";
    } else if (c == '\t') {
      line += "\\t";
    } else if (IsControl(c)) {
      absl::StrAppendFormat(&line, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      line += c;
    }
  }
  line += '"';
}

void AppendField(std::string_view key, std::string_view value, std::string& line) {
  if (!line.empty()) line += ' ';
  line.append(key).append("=");
  if (NeedsQuotes(value)) {
    AppendQuoted(value, line);
  } else {
    line += value;
  }
}

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  const spdlog::level::level_enum spdlog_level = SpdlogLevel(level);
  if (!spdlog::should_log(spdlog_level)) return;
  spdlog::default_logger_raw()->log(spdlog_level, spdlog::string_view_t(FormatLogfmt(message, fields)));
}

absl::StatusOr<LogLevel> ParseLogLevel(std::string_view name) {
  constexpr std::pair<std::string_view, LogLevel> kLevels[] = {{"", LogLevel::kInfo},
                                                               {"debug", LogLevel::kDebug},
                                                               {"info", LogLevel::kInfo},
                                                               {"warning", LogLevel::kWarning},
                                                               {"error", LogLevel::kError}};
  for (const auto& [level_name, level] : kLevels) {
    if (level_name == name) return level;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("log_level: \"", std::string(name), "\" is not a level; give debug, info, warning or error"));
}

absl::Status SetLogLevel(std::string_view name) {
  const absl::StatusOr<LogLevel> level = ParseLogLevel(name);
  if (level.ok()) spdlog::set_level(SpdlogLevel(*level));
  return level.status();
}

std::string FormatLogfmt(std::string_view message, std::initializer_list<LogField> fields) {
  std::string line;
  AppendField("msg", message, line);
  for (const LogField& field : fields) AppendField(field.key, field.value, line);
  return line;
}

void SetLogTreeLevel(std::string_view level) {
  const std::string field = level.empty() ? "" : absl::StrCat("tree_level=", std::string(level), " ");
  spdlog::default_logger_raw()->set_formatter(std::make_unique<spdlog::pattern_formatter>(
      absl::StrCat("ts=%Y-%m-%dT%H:%M:%S.%eZ level=%l ", field, "%v"), spdlog::pattern_time_type::utc));
}

void StartLogging() {
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("sluice", std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  SetLogTreeLevel("");
  spdlog::default_logger_raw()->flush_on(spdlog::level::debug);
}

}  // namespace sluice

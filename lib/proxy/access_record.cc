#include "lib/proxy/access_record.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice {
namespace {

constexpr size_t kMaxTextBytes = 256;
constexpr size_t kMaxTraceparentBytes = 64;  // a traceparent of version 00 has 55

// Bytes that are not ASCII become "?": a header may contain any bytes, and JSON must be UTF-8.
void AddText(absl::string_view name, absl::string_view text, size_t max_bytes, std::string& line) {
  absl::StrAppend(&line, ",\"", name, "\":\"");
  for (const char c : text.substr(0, max_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else {
      line += byte < 0x20 || byte >= 0x7f ? '?' : c;
    }
  }
  line += '"';
}

void AddMilliseconds(absl::string_view name, absl::Duration time, std::string& line) {
  if (time == absl::InfiniteDuration()) return;
  absl::StrAppendFormat(&line, ",\"%s_ms\":%.3f", name, absl::ToDoubleMilliseconds(time));
}

}  // namespace

std::string AccessLine(const AccessRecord& record, absl::Time now) {
  std::string line =
      absl::StrCat("{\"time\":\"", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", now, absl::UTCTimeZone()), "\"");
  AddText("client", record.group, kMaxTextBytes, line);
  AddText("method", record.method, kMaxTextBytes, line);
  AddText("worker", record.worker, kMaxTextBytes, line);
  AddText("workers", record.pattern, kMaxTextBytes, line);
  AddText("class", record.traffic_class, kMaxTextBytes, line);
  AddMilliseconds("waited", record.waited, line);
  AddMilliseconds("ready", record.ready, line);
  AddMilliseconds("granted", record.granted, line);
  AddMilliseconds("received", record.received, line);
  AddMilliseconds("took", record.took, line);
  absl::StrAppend(&line, ",\"bytes\":", record.response_bytes);
  AddText("outcome", absl::StatusCodeToString(record.outcome), kMaxTextBytes, line);
  if (!record.limit.empty()) AddText("limit", record.limit, kMaxTextBytes, line);
  if (!record.traceparent.empty()) AddText("traceparent", record.traceparent, kMaxTraceparentBytes, line);
  line += '}';
  return line;
}

}  // namespace sluice

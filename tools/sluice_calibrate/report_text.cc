#include <string>

#include <google/protobuf/util/json_util.h>

#include "sluice/v1/config.pb.h"

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "lib/cli/units.h"
#include "tools/sluice_calibrate/report.h"

namespace sluice {
namespace {

std::string FormatValue(const std::string& unit, double value) {
  if (unit == "s") return sluice::FormatDuration(absl::Seconds(value));
  if (unit == "bit/s") return FormatBitRate(value);
  return FormatByteSize(static_cast<int64_t>(value));
}

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  // Only malformed Any messages and infinite numbers fail, and neither occurs here.
  (void)google::protobuf::util::MessageToJsonString(message, &json, options);
  return json;
}

}  // namespace

void PrintReport(const v1::Calibration& report, std::ostream& out) {
  out << absl::StreamFormat("%-20s %14s  %-28s %7s\n", "figure", "value", "interval", "samples");
  for (const v1::Figure& figure : report.figures()) {
    if (figure.has_value()) {
      const std::string interval =
          FormatValue(figure.unit(), figure.low()) + " to " + FormatValue(figure.unit(), figure.high());
      out << absl::StreamFormat("%-20s %14s  %-28s %7d", figure.name(), FormatValue(figure.unit(), figure.value()),
                                interval, figure.samples());
      if (!figure.note().empty()) out << "  " << figure.note();
      out << "\n";
    } else {
      out << absl::StreamFormat("%-20s not determined: %s\n", figure.name(), figure.note());
    }
  }
  for (const std::string& note : report.notes()) out << "note: " << note << "\n";
  out << absl::StreamFormat("\nMeasured in %.0f s. For the config of the aggregator:\n\n", report.seconds())
      << LinkConfigJson(report);
}

std::string ReportJson(const v1::Calibration& report) {
  return ToJson(report);
}

std::string LinkConfigJson(const v1::Calibration& report) {
  v1::AggregatorConfig config;
  *config.mutable_link() = report.link();
  return ToJson(config);
}

}  // namespace sluice

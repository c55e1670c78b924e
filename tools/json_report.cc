#include "tools/json_report.h"

#include <filesystem>
#include <fstream>
#include <iostream>

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

google::protobuf::Value ToValue(const JsonValue& value) {
  google::protobuf::Value out;
  if (const auto* number = std::get_if<double>(&value)) {
    out.set_number_value(*number);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    out.set_string_value(*text);
  } else {
    auto& list = *out.mutable_list_value();
    for (const double number : std::get<std::vector<double>>(value)) list.add_values()->set_number_value(number);
  }
  return out;
}

}  // namespace

absl::Status WriteJsonReport(const std::string& path, std::initializer_list<std::pair<const char*, JsonValue>> fields) {
  google::protobuf::Struct report;
  for (const auto& [name, value] : fields) (*report.mutable_fields())[name] = ToValue(value);
  std::string json;
  const auto written = google::protobuf::util::MessageToJsonString(report, &json);
  if (!written.ok()) return absl::InternalError(absl::StrCat("JSON report: ", written.ToString()));
  std::ofstream file;
  if (path != "-") file.open(path);
  std::ostream& out = path == "-" ? std::cout : file;
  out << json << std::endl;
  if (!out) return absl::FailedPreconditionError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

absl::Status CheckReportFolder(const char* field, const std::string& path) {
  if (path.empty() || path == "-") return absl::OkStatus();
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (std::filesystem::is_directory(folder)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": \"", path, "\": there is no folder ", folder.string()));
}

}  // namespace sluice

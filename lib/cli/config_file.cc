#include "lib/cli/config_file.h"

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <system_error>
#include <vector>

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sluice {
namespace {

constexpr std::streamsize kMaxConfigBytes = 1 << 20;

// Protobuf's "(link.buffer): invalid value 32000 for type TYPE_STRING", in words that name the remedy.
std::string Explain(std::string message) {
  absl::string_view rest = message;
  if (!absl::ConsumeSuffix(&rest, " for type TYPE_STRING")) return message;
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, absl::MaxSplits(": invalid value ", 1));
  if (parts.size() != 2) return message;
  const absl::string_view field = absl::StripPrefix(absl::StripSuffix(parts[0], ")"), "(");
  return absl::StrCat(field, ": ", parts[1], " is not a string; write \"", parts[1], "\"");
}

}  // namespace

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat("config file ", path, " does not exist"));
  }
  if (status.type() == std::filesystem::file_type::directory) {
    return absl::FailedPreconditionError(absl::StrCat("config file ", path, " is a folder"));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::FailedPreconditionError(absl::StrCat("config file ", path, " cannot be opened for reading"));
  // Read one byte more than the bound to detect a file that is too large; a pipe has no size to query.
  std::string text(kMaxConfigBytes + 1, '\0');
  file.read(text.data(), kMaxConfigBytes + 1);
  if (file.bad()) return absl::FailedPreconditionError(absl::StrCat("config file ", path, " cannot be read"));
  if (file.gcount() > kMaxConfigBytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("config file ", path, " is larger than ", kMaxConfigBytes, " bytes"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

absl::Status ParseConfig(const std::string& text, google::protobuf::Message& config) {
  const std::unique_ptr<google::protobuf::Message> parsed(config.New());
  const auto status = google::protobuf::util::JsonStringToMessage(text, parsed.get());
  if (!status.ok()) return absl::InvalidArgumentError(Explain(std::string(status.message())));
  config.MergeFrom(*parsed);
  return absl::OkStatus();
}

absl::Status LoadConfigFile(const std::string& path, google::protobuf::Message& config) {
  absl::StatusOr<std::string> text = ReadConfigFile(path);
  if (!text.ok()) return text.status();
  const absl::Status parsed = ParseConfig(*text, config);
  if (parsed.ok()) return parsed;
  return absl::InvalidArgumentError(absl::StrCat("config file ", path, ": ", parsed.message()));
}

}  // namespace sluice

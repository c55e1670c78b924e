#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace google::protobuf {
class Message;
}

namespace sluice {

// Returns the content of a config file. Errors: NotFound, FailedPrecondition (not readable, larger than 1 MiB).
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);

// Merges protobuf's JSON into `config`: fields that the text does not name keep their values. After InvalidArgument
// (not JSON, an unknown key, a value of another type) `config` has not changed.
absl::Status ParseConfig(const std::string& text, google::protobuf::Message& config);

// As ParseConfig, with the content of a config file. Returns the errors of ReadConfigFile and ParseConfig, which name
// the file.
absl::Status LoadConfigFile(const std::string& path, google::protobuf::Message& config);

}  // namespace sluice

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace google::protobuf {
class Message;
}

namespace sluice {

// What is in a config file. NotFound, FailedPrecondition as LoadConfigFile.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);

// Merges a config file in protobuf's JSON into `config`: a field that the file does not name keeps its value. Errors
// say which file: NotFound, FailedPrecondition (not readable, larger than 1 MiB), InvalidArgument (not JSON, a key that
// the config does not have, a value of another type); then `config` has not changed.
absl::Status LoadConfigFile(const std::string& path, google::protobuf::Message& config);

}  // namespace sluice

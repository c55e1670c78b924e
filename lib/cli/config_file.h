#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace google::protobuf {
class Message;
}

namespace sluice {

// What is in a config file. NotFound, FailedPrecondition (not readable, larger than 1 MiB).
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);

// Merges protobuf's JSON into `config`: a field that the text does not name keeps its value. InvalidArgument (not JSON,
// a key that the config does not have, a value of another type): `config` has not changed.
absl::Status ParseConfig(const std::string& text, google::protobuf::Message& config);

// The same with what is in a config file. Errors say which file: those of ReadConfigFile and ParseConfig.
absl::Status LoadConfigFile(const std::string& path, google::protobuf::Message& config);

}  // namespace sluice

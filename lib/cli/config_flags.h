#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sluice/v1/field_help.pb.h"

#include "absl/status/status.h"
#include "lib/cli/config_fields.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 named it
class App;
}
namespace google::protobuf {
class Message;
}

namespace sluice {

// The flags of a config: one for each field whose proto gives it a flag (see v1::FieldHelp). Names, help texts and
// defaults come from there. A flag has the syntax of its field: text, a number, true or false, or a list, which may be
// given several times or once with commas and replaces the list of the config file. A bool without a placeholder is a
// switch, and so is a message, which it makes present. There is one for each parse of a command line; the flags do not
// refer to it. Not thread-safe.
class ConfigFlags {
 public:
  // Sets a field from all values of its flag. Returns InvalidArgument that quotes the wrong value.
  using Parser = std::function<absl::Status(const std::vector<std::string>& values)>;

  // Parsing writes only the flags that are given; `config` must outlive parsing. `shown_as` applies to the whole
  // config.
  explicit ConfigFlags(google::protobuf::Message& config, v1::FieldHelp shown_as = {});

  // Gives a list of messages a flag with a syntax of its own, such as LISTEN=WORKERS. Its field must name the flag.
  void SetParser(const std::string& flag, Parser parser) { parsers_[flag] = std::move(parser); }

  void AddTo(CLI::App& app) const;

 private:
  google::protobuf::Message& config_;
  const v1::FieldHelp shown_as_;
  std::map<std::string, Parser> parsers_;
};

// Returns the text that --help shows for a field: what it does, and its default.
std::string HelpText(const ConfigField& field);

}  // namespace sluice

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 named it
class App;
class Option;
}  // namespace CLI
namespace google::protobuf {
class Message;
}

namespace sluice {

// The common structure of every main. Flags are written with underscores and accepted with dashes too (--check-config).
//
// If `config` is set, the program has a config file: --config FILE is loaded into it during the parse of the command
// line. Every flag is written afterwards. A flag therefore overrides the file at any position, even if its value is the
// default. ConfigFlags makes the flags of `config`. Rejected: a second message for flags and MergeFrom, which cannot
// override the file with "false" or "".
struct Program {
  std::string name;         // "sluice-worker"
  std::string description;  // of --help, one sentence
  // The beginning of --help: the arguments of a useful command line, and the flags that a new user needs, which --help
  // lists before all others. Both may be empty.
  std::string example;
  std::vector<std::string> main_flags;
  std::function<void(CLI::App&)> add_flags;
  google::protobuf::Message* config = nullptr;  // adds --config, --check_config and the hidden --config_reference
  std::string* config_file = nullptr;           // receives the path of --config; may be null
  // Checks the complete user input and starts nothing. After it --check_config prints "config ok".
  std::function<absl::Status()> configure;
  // Looks for the files and folders that `run` would open, and logs the warnings of a start that follow from the
  // config. Only --check_config calls it, after `configure`. May be empty.
  std::function<absl::Status()> check;
  std::function<absl::Status()> run;
};

// Returns the exit code of main: 0, 1 if `run` failed, 2 if the command line, the config file, `configure` or `check`
// failed.
// Errors go to stderr as "sluice-worker: <message>". --help and --version print to stdout and exit with 0. Nothing is
// thrown.
int RunProgram(int argc, const char* const* argv, const Program& program);

// Parses the command line of a running program again, into an empty `config`: the config file is read again, and flags
// still override it. `add_flags` binds to that config. Returns the errors of LoadConfigFile.
absl::Status ReadConfigAgain(int argc, const char* const* argv, const std::function<void(CLI::App&)>& add_flags,
                             google::protobuf::Message& config);

// Adds a flag that may be given several times, or once with commas, and that replaces the list in the config file. An
// empty entry between commas is refused:
// AddListFlag(app, "--workers", "...", [&](const std::vector<std::string>& list) {...clear, add...}).
CLI::Option* AddListFlag(CLI::App& app, const std::string& name, const std::string& help,
                         const std::function<void(const std::vector<std::string>&)>& set);

}  // namespace sluice

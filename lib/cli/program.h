#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 named it
class App;
}
namespace google::protobuf {
class Message;
}

namespace sluice {

// One shape for every main. Flags are written with underscores and accepted with dashes too (--check-config).
//
// Where `config` is set there is a config file: --config FILE is loaded into it while the command line is read, and
// every flag is written afterwards, so a flag wins over the file, wherever it stands and also when its value is the
// default. Bind flags to `config` by setters, not by references to strings; list flags clear the list first (see
// AddListFlag). Rejected: a second message for flags and MergeFrom, which cannot say "false" or "" over the file.
struct Program {
  std::string name;         // "sluice-worker"
  std::string description;  // of --help, one sentence
  std::function<void(CLI::App&)> add_flags;
  google::protobuf::Message* config = nullptr;  // adds --config and --check_config
  std::string* config_file = nullptr;           // where the path of --config goes; may be null
  // Everything that can be wrong with what the user wrote. Starts nothing. After it --check_config says "config ok".
  std::function<absl::Status()> configure;
  std::function<absl::Status()> run;
};

// The exit code of main: 0, 1 when `run` failed, 2 when the command line, the config file or `configure` did. Errors go
// to stderr as "sluice-worker: <message>". --help and --version print to stdout and exit with 0. Nothing is thrown.
int RunProgram(int argc, const char* const* argv, const Program& program);

// The command line of a program that runs, once more, into a `config` that is empty: what has changed in the config
// file is there, and flags still win over it. `add_flags` binds to that config. The errors of LoadConfigFile.
absl::Status ReadConfigAgain(int argc, const char* const* argv, const std::function<void(CLI::App&)>& add_flags,
                             google::protobuf::Message& config);

// A flag with one value, written by a setter (see Program).
void AddTextFlag(CLI::App& app, const std::string& name, const std::string& help,
                 const std::function<void(const std::string&)>& set);

// A flag that may be given several times, or once with commas, and that replaces the list in the config file:
// AddListFlag(app, "--workers", "...", [&](const std::vector<std::string>& list) {...clear, add...}).
void AddListFlag(CLI::App& app, const std::string& name, const std::string& help,
                 const std::function<void(const std::vector<std::string>&)>& set);

}  // namespace sluice

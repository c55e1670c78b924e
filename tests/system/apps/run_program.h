#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

// Runs the built programs as a user does. No shell between.
namespace sluice::testing {

struct ProgramResult {
  int exit_code = -1;  // 128 + the signal's number where a signal ended it
  std::string out;
  std::string err;
};

// A program that runs until it ends, or until its owner goes: then it is killed, by its id, and reaped. Not
// thread-safe.
class BackgroundProgram {
 public:
  // argv[0] is a path. Its stdout and stderr are collected, also while nobody looks. A program that cannot be started
  // ends with 127.
  explicit BackgroundProgram(const std::vector<std::string>& argv, std::string input = "");
  ~BackgroundProgram();
  BackgroundProgram(const BackgroundProgram&) = delete;
  BackgroundProgram& operator=(const BackgroundProgram&) = delete;

  void Signal(int number) const;

  // The result once it has ended; nothing, and a test failure, when that takes longer.
  std::optional<ProgramResult> Wait(std::chrono::seconds timeout = std::chrono::seconds(30));

  // Whether the text came on stderr within the time; at once when the program ends without it.
  bool WaitForStderr(const std::string& text, std::chrono::seconds timeout = std::chrono::seconds(30));

  const std::string& err() const { return result_.err; }

 private:
  bool Pump(std::chrono::steady_clock::time_point deadline);
  void Close(int& fd);

  pid_t pid_ = -1;  // -1: ended and reaped
  int in_ = -1;
  int out_ = -1;
  int err_ = -1;
  std::string input_;  // not written yet
  ProgramResult result_;
};

// Runs a program to its end. A test failure, and exit code -1, when it takes longer than the timeout.
ProgramResult RunProgram(const std::vector<std::string>& argv, const std::string& input = "",
                         std::chrono::seconds timeout = std::chrono::seconds(30));

}  // namespace sluice::testing

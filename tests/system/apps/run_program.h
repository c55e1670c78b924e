#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

// Runs the built programs the way a user does, without a shell in between.
namespace sluice::testing {

struct ProgramResult {
  int exit_code = -1;  // 128 + the number of the signal if a signal ended the program
  std::string out;
  std::string err;
};

// A program that runs until it ends. The destructor kills it by its id and reaps it. One for each process. Not
// thread-safe.
class BackgroundProgram {
 public:
  // argv[0] is a path. Wait and WaitForStderr collect stdout and stderr. A program that cannot be started ends with
  // 127.
  explicit BackgroundProgram(const std::vector<std::string>& argv, std::string input = "");
  ~BackgroundProgram();
  BackgroundProgram(const BackgroundProgram&) = delete;
  BackgroundProgram& operator=(const BackgroundProgram&) = delete;

  void Signal(int number) const;

  // Returns the result once the program has ended. After the timeout it reports a test failure and returns nullopt.
  std::optional<ProgramResult> Wait(std::chrono::seconds timeout = std::chrono::seconds(30));

  // Returns whether the text appeared on stderr within the time. Returns false at once if the program ends without it.
  bool WaitForStderr(const std::string& text, std::chrono::seconds timeout = std::chrono::seconds(30));

  const std::string& err() const { return result_.err; }

 private:
  bool Pump(std::chrono::steady_clock::time_point deadline);
  void Close(int& fd);

  pid_t pid_ = -1;  // -1 once the program has ended and been reaped
  int in_ = -1;
  int out_ = -1;
  int err_ = -1;
  std::string input_;  // bytes that are not written yet
  ProgramResult result_;
};

// Runs a program to its end. After the timeout it reports a test failure and returns exit code -1.
ProgramResult RunProgram(const std::vector<std::string>& argv, const std::string& input = "",
                         std::chrono::seconds timeout = std::chrono::seconds(30));

}  // namespace sluice::testing

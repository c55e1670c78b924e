#include "tests/system/apps/run_program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

extern char** environ;

namespace sluice::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct PipeEnds {
  int read_end = -1;
  int write_end = -1;
};

PipeEnds MakePipe() {
  std::array<int, 2> ends = {-1, -1};
  EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  return {ends[0], ends[1]};
}

int MillisecondsUntil(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(0, left + 1));
}

pid_t Spawn(const std::vector<std::string>& argv, int in, int out, int err) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

int ExitCode(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

BackgroundProgram::BackgroundProgram(const std::vector<std::string>& argv, std::string input)
    : input_(std::move(input)) {
  std::signal(SIGPIPE, SIG_IGN);  // a program may end before it has read its stdin
  PipeEnds in = MakePipe();
  PipeEnds out = MakePipe();
  PipeEnds err = MakePipe();
  pid_ = Spawn(argv, in.read_end, out.write_end, err.write_end);
  Close(in.read_end);
  Close(out.write_end);
  Close(err.write_end);
  in_ = in.write_end;
  out_ = out.read_end;
  err_ = err.read_end;
  for (const int fd : {in_, out_, err_}) fcntl(fd, F_SETFL, O_NONBLOCK);
  if (pid_ < 0) result_ = {.exit_code = 127, .out = "", .err = "cannot start " + argv[0]};
}

BackgroundProgram::~BackgroundProgram() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (int* fd : {&in_, &out_, &err_}) Close(*fd);
}

void BackgroundProgram::Signal(int number) const {
  ASSERT_GT(pid_, 0) << "the program has ended";
  ASSERT_EQ(kill(pid_, number), 0);
}

std::optional<ProgramResult> BackgroundProgram::Wait(std::chrono::seconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  while (Pump(deadline)) {
  }
  if (out_ >= 0 || err_ >= 0) {
    ADD_FAILURE() << "the program did not end within " << timeout.count() << " s; stderr:\n" << result_.err;
    return std::nullopt;
  }
  if (pid_ > 0) {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);  // returns soon: both outputs are closed
    pid_ = -1;
    result_.exit_code = ExitCode(status);
  }
  return result_;
}

bool BackgroundProgram::WaitForStderr(const std::string& text, std::chrono::seconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  while (result_.err.find(text) == std::string::npos) {
    if (!Pump(deadline)) return false;
  }
  return true;
}

// Waits until a pipe is ready, then moves the available bytes. Returns false once both outputs have ended or the
// deadline has passed.
bool BackgroundProgram::Pump(Clock::time_point deadline) {
  if (input_.empty()) Close(in_);
  if (out_ < 0 && err_ < 0) return false;
  std::array<pollfd, 3> fds = {{{in_, POLLOUT, 0}, {out_, POLLIN, 0}, {err_, POLLIN, 0}}};
  const int ready = poll(fds.data(), fds.size(), MillisecondsUntil(deadline));
  if (ready < 0) return errno == EINTR;
  if (ready == 0) return false;
  if (fds[0].revents != 0) {
    const ssize_t written = write(in_, input_.data(), input_.size());
    if (written < 0 && errno != EAGAIN) Close(in_);
    if (written > 0) input_.erase(0, static_cast<size_t>(written));
  }
  const auto collect = [](int& fd, const pollfd& state, std::string& to) {
    if (state.revents == 0) return;
    std::array<char, 65536> buffer;
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got > 0) to.append(buffer.data(), static_cast<size_t>(got));
    if (got == 0) {
      close(fd);
      fd = -1;
    }
  };
  collect(out_, fds[1], result_.out);
  collect(err_, fds[2], result_.err);
  return true;
}

void BackgroundProgram::Close(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

ProgramResult RunProgram(const std::vector<std::string>& argv, const std::string& input, std::chrono::seconds timeout) {
  BackgroundProgram program(argv, input);
  return program.Wait(timeout).value_or(ProgramResult{});
}

}  // namespace sluice::testing

#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/net/asio_executor.h"

namespace sluice::testing {

// The real executor, with names and a clock that the test controls: it sets the addresses of names, and may stop or
// advance the clock. Used on the link's thread only, except for Post.
class NamesExecutor final : public Executor {
 public:
  using Addresses = absl::StatusOr<std::vector<std::string>>;

  explicit NamesExecutor(AsioExecutor& real) : real_(real) {}

  // Sets the addresses of "name:port" for later look-ups, and completes the pending ones. Before that they do not end.
  void SetName(const std::string& name, Addresses addresses) {
    names_[name] = std::move(addresses);
    for (const auto& question : std::exchange(questions_[name], {})) Answer(question, name);
  }
  // Returns the number of pending look-ups of this name.
  size_t open_questions(const std::string& name) {
    auto& questions = questions_[name];
    std::erase_if(questions, [](const auto& question) { return question.expired(); });
    return questions.size();
  }
  // All addresses that were connected to, in order.
  const std::vector<std::string>& connected_to() const { return connected_to_; }
  // Called within each look-up.
  std::function<void(const std::string& name)> on_look_up = [](const std::string&) {};

  void StopClock() { stopped_at_ = real_.Now(); }
  void StartClock() { stopped_at_.reset(); }
  void PutForward(std::chrono::nanoseconds time) { ahead_ += time; }

  TimePoint Now() const override { return stopped_at_.value_or(real_.Now()) + ahead_; }
  void Post(std::function<void()> task) override { real_.Post(std::move(task)); }
  void SetEndOfTurn(std::function<void()> task) override { real_.SetEndOfTurn(std::move(task)); }
  void SetTimer(TimePoint time, std::function<void()> task) override {
    if (stopped_at_.has_value()) return;  // the turn after PutForward handles the timers that are due
    real_.SetTimer(time == TimePoint::max() ? time : time - ahead_, std::move(task));
  }
  double Random() override { return real_.Random(); }
  std::shared_ptr<void> Resolve(const std::string& target, OnResolved on_resolved) override {
    if (target.find(".test") == std::string::npos) return real_.Resolve(target, std::move(on_resolved));
    on_look_up(target);
    auto question = std::make_shared<OnResolved>(std::move(on_resolved));
    if (names_.contains(target)) {
      Answer(question, target);
    } else {
      questions_[target].push_back(question);
    }
    return question;
  }
  std::unique_ptr<StreamSocket> Connect(const WorkerAddress& address, const ConnectOptions& options,
                                        StreamSocketEvents& events) override {
    connected_to_.push_back(address.text);
    return real_.Connect(address, options, events);
  }

 private:
  void Answer(std::weak_ptr<OnResolved> question, const std::string& name) {
    const Addresses& found = names_.at(name);
    absl::StatusOr<std::vector<WorkerAddress>> answer = std::vector<WorkerAddress>();
    if (!found.ok()) answer = found.status();
    for (const std::string& address : found.value_or(std::vector<std::string>())) answer->push_back({address});
    real_.Post([question = std::move(question), answer = std::move(answer)] {
      if (const auto asked = question.lock()) std::exchange(*asked, nullptr)(answer);
    });
  }

  AsioExecutor& real_;
  std::optional<TimePoint> stopped_at_;
  std::chrono::nanoseconds ahead_{0};
  std::map<std::string, Addresses> names_;
  std::map<std::string, std::vector<std::weak_ptr<OnResolved>>> questions_;
  std::vector<std::string> connected_to_;
};

}  // namespace sluice::testing

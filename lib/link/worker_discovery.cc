#include "lib/link/worker_discovery.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/net/worker_address.h"

namespace sluice {
namespace {

std::vector<std::string> MembersOf(std::vector<WorkerAddress> addresses) {
  addresses.resize(SortByFamily(addresses));
  std::vector<std::string> members;
  for (WorkerAddress& address : addresses) members.push_back(std::move(address.text));
  return members;
}

}  // namespace

WorkerDiscovery::WorkerDiscovery(Executor& executor, TimerQueue& timers, LinkMetrics& metrics, Options options)
    : executor_(executor),
      timers_(timers),
      metrics_(metrics),
      options_(std::move(options)),
      members_(options_.list.names.size()) {
  LookUpNext();
}

WorkerDiscovery::~WorkerDiscovery() {
  timers_.Clear(timer_);
}

// One at a time, so that a look at a thousand workers does not send a thousand queries at once.
void WorkerDiscovery::LookUpNext() {
  if (next_name_ < options_.list.names.size()) {
    look_up_ = executor_.Resolve(options_.list.names[next_name_], [this](const Answer& answer) {
      OnName(answer);
      LookUpNext();
    });
  } else if (options_.list.open.has_value() && !range_done_ &&
             options_.list.fixed.size() + found_ < kMaxListedWorkers) {
    look_up_ = executor_.Resolve(options_.list.open->Address(found_), [this](const Answer& answer) {
      OnNumbered(answer);
      LookUpNext();
    });
  } else {
    look_up_.reset();
    EndLook();
  }
}

void WorkerDiscovery::OnName(const Answer& answer) {
  if (answer.ok() && !answer->empty()) {
    members_[next_name_] = MembersOf(*answer);
  } else {
    NoteFailure(absl::StrCat("dns+", options_.list.names[next_name_]),
                answer.ok() ? absl::NotFoundError("the name has no address") : answer.status());
  }
  ++next_name_;
}

void WorkerDiscovery::OnNumbered(const Answer& answer) {
  if (answer.ok()) {
    ++found_;
    return;
  }
  range_done_ = true;
  if (!absl::IsNotFound(answer.status())) NoteFailure(options_.list.open->Address(found_), answer.status());
}

void WorkerDiscovery::NoteFailure(const std::string& entry, const absl::Status& why) {
  metrics_.CountWorkerLookupFailure();
  failure_.Update(absl::UnavailableError(absl::StrCat("workers: \"", entry, "\": ", why.message())));
}

void WorkerDiscovery::EndLook() {
  next_name_ = 0;
  range_done_ = false;
  timer_ = timers_.Set(executor_.Now() + kLookEvery, [this] { LookUpNext(); });

  absl::Status failure = std::exchange(failure_, absl::OkStatus());
  if (failure != told_failure_) {
    told_failure_ = failure;
    if (options_.on_state) options_.on_state(failure);
  }
  std::vector<std::string> members;
  for (const auto& of_name : members_) members.insert(members.end(), of_name.begin(), of_name.end());
  std::vector<std::string> workers = options_.list.Addresses(found_, members);
  if (told_ && workers == told_workers_) return;
  told_ = true;
  told_workers_ = workers;
  options_.on_workers(std::move(workers));
}

}  // namespace sluice

#include "lib/proxy/target.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/link/worker_address.h"

namespace sluice {
namespace {

constexpr std::chrono::seconds kResolveEvery{5};

std::string HostOf(const std::string& name) {
  const absl::StatusOr<WorkerTarget> target = ParseWorkerTarget(name);
  return target.ok() ? target->host : std::string();
}

}  // namespace

Target::Target(LinkCore& core, std::shared_ptr<const TargetPolicy> policy, std::shared_ptr<TlsContext> tls,
               std::string name)
    : core_(core), policy_(std::move(policy)), tls_(std::move(tls)), name_(std::move(name)), host_(HostOf(name_)) {
  last_use_ = core_.now();
}

void Target::Wait(TargetWaiter& waiter) {
  waiting_.push_back(waiter);
  if (look_up_ == nullptr) LookUp();
}

// Look-ups take turns: one that nobody waits for any more would keep others from theirs.
void Target::Leave(TargetWaiter& waiter) {
  if (!waiter.is_linked()) return;
  waiter.unlink();
  if (waiting_.empty()) look_up_.reset();
}

absl::StatusOr<Target::Choice> Target::Pick() {
  last_use_ = core_.now();
  if (look_up_ == nullptr && last_use_ - looked_ >= kResolveEvery) LookUp();
  if (choices_.empty()) return failure_;
  for (size_t tries = 0; tries < choices_.size(); ++tries) {
    const Choice& choice = choices_[next_++ % choices_.size()];
    if (choice.worker->failure().ok()) return choice;
  }
  return choices_[next_++ % choices_.size()];
}

bool Target::connected() const {
  return std::any_of(choices_.begin(), choices_.end(), [](const Choice& choice) { return choice.worker->connected(); });
}

// Literals go the same way: the executor has their address at once.
void Target::LookUp() {
  looked_ = core_.now();
  look_up_ = core_.executor().Resolve(name_, [this](absl::StatusOr<std::vector<WorkerAddress>> addresses) {
    look_up_.reset();
    OnAddresses(std::move(addresses));
    known_ = true;
    while (!waiting_.empty()) {
      TargetWaiter& waiter = waiting_.front();
      waiting_.pop_front();
      waiter.OnTargetKnown();
    }
  });
}

// A look-up that fails changes nothing: a wrong answer of the name server is more likely than the end of all workers.
void Target::OnAddresses(absl::StatusOr<std::vector<WorkerAddress>> addresses) {
  if (!addresses.ok() || addresses->empty()) {
    const absl::string_view why = addresses.ok() ? "the name has no address" : addresses.status().message();
    failure_ = absl::UnavailableError(absl::StrCat(name_, ": ", why));
    return;
  }
  std::vector<Choice> choices;
  for (const WorkerAddress& address : *addresses) {
    absl::StatusOr<absl::string_view> pattern = policy_->CheckAddress(name_, address.text);
    if (!pattern.ok()) {
      failure_ = pattern.status();
      continue;
    }
    choices.push_back({core_.FindWorker(address.text, tls_, host_), std::string(*pattern)});
  }
  choices_ = std::move(choices);
}

}  // namespace sluice

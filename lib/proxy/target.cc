#include "lib/proxy/target.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/net/worker_address.h"

namespace sluice {
namespace {

constexpr std::chrono::seconds kResolveEvery{5};
// Within this time an address of each family has been tried, and a lost SYN sent again. Then calls use the workers of
// the first family, which try again.
constexpr std::chrono::seconds kMaxSearch{2};

// Without the dot at the end of an absolute name, which certificates and SNI do not have (RFC 6066, section 3).
std::string HostOf(const std::string& name) {
  const absl::StatusOr<WorkerTarget> target = ParseWorkerTarget(name);
  return target.ok() ? std::string(absl::StripSuffix(target->host, ".")) : std::string();
}

}  // namespace

Target::Target(LinkLoop& loop, std::shared_ptr<const TargetPolicy> policy, std::shared_ptr<TlsContext> tls,
               std::string name, std::shared_ptr<LookUpTurns> turns, size_t group)
    : loop_(loop),
      policy_(std::move(policy)),
      tls_(std::move(tls)),
      name_(std::move(name)),
      host_(HostOf(name_)),
      first_look_up_(std::move(turns), group, [this] { LookUp(); }) {
  last_use_ = loop_.now();
}

Target::~Target() {
  loop_.timers().Clear(search_timer_);
}

bool Target::has_family() const {
  return looked_up_ && (of_family_ == places_.size() || searched_ || connected());
}

void Target::Wait(TargetWaiter& waiter) {
  waiting_.push_back(waiter);
  if (looked_up_) return FindFamily();
  if (look_up_ == nullptr) first_look_up_.Ask();
}

// Look-ups take turns: a look-up that no call needs would delay the others.
void Target::Leave(TargetWaiter& waiter) {
  if (!waiter.is_linked()) return;
  waiter.unlink();
  if (!waiting_.empty()) return;
  look_up_.reset();
  first_look_up_.End();
  search_.reset();
  loop_.timers().Clear(search_timer_);
}

void Target::Notify() {
  Waiters waiters;  // those that wait again do so for the next step
  waiters.swap(waiting_);
  while (!waiters.empty()) {
    TargetWaiter& waiter = waiters.front();
    waiters.pop_front();
    waiter.OnTargetStep();
  }
}

void Target::FindFamily() {
  if (search_ != nullptr) return;
  search_ = std::make_unique<HappyEyeballsSocket>(loop_.executor(), loop_.timers(), addresses(),
                                                  Executor::ConnectOptions{}, static_cast<StreamSocketEvents&>(*this));
  search_timer_ = loop_.timers().Set(loop_.now() + kMaxSearch, [this] { EndSearch(); });
}

void Target::OnConnected() {
  if (search_ == nullptr) return;  // it has ended in this turn
  OnReached(search_->address());
  EndSearch();
}

void Target::EndSearch() {
  if (search_ == nullptr) return;
  searched_ = true;
  loop_.timers().Clear(search_timer_);
  // Later, since its event may be on the stack.
  loop_.AtEndOfTurn([events = shared_from_this(), over = std::shared_ptr<HappyEyeballsSocket>(std::move(search_))] {});
  Notify();
}

absl::Status Target::Check() {
  last_use_ = loop_.now();
  if (look_up_ == nullptr && last_use_ - looked_ >= kResolveEvery) LookUp();
  return places_.empty() ? failure_ : absl::OkStatus();
}

// Connects all of them: a worker without a connection would never get its turn while others are connected. It connects
// few at a time, because the owner of a name may give the name thousands of addresses at which nobody answers.
void Target::Dial(size_t choices) {
  constexpr std::ptrdiff_t kMostDials = 8;
  const auto dialled_end = choices_.begin() + static_cast<std::ptrdiff_t>(dialled_);
  std::ptrdiff_t dials = std::count_if(choices_.begin(), dialled_end, [](const Choice& choice) {
    return !choice.worker->connected() && choice.worker->failure().ok();
  });
  for (; dialled_ < choices && dials < kMostDials; ++dialled_) {
    Worker& worker = *choices_[dialled_].worker;
    if (worker.connected()) continue;
    worker.Connect();
    ++dials;
  }
}

absl::StatusOr<Target::Choice> Target::Pick(absl::Span<const size_t> tried) {
  if (absl::Status checked = Check(); !checked.ok()) return checked;
  if (!std::exchange(called_, true)) FindWorkers();
  Dial(of_family_);
  size_t best = next_ % choices_.size();
  for (size_t i = 1; i < choices_.size() && Rank(best, tried) > 0; ++i) {
    const size_t other = (next_ + i) % choices_.size();
    if (Rank(other, tried) < Rank(best, tried)) best = other;
  }
  if (best >= of_family_) Dial(choices_.size());
  next_ = best + 1;
  if (ejections_ != nullptr) ejections_->OnChosen(choices_[best].worker->row());
  return choices_[best];
}

int Target::Rank(size_t choice, absl::Span<const size_t> tried) const {
  const Worker& worker = *choices_[choice].worker;
  const bool ejected = ejections_ != nullptr && ejections_->IsAvoided(worker.row());
  const bool avoid = std::find(tried.begin(), tried.end(), worker.row()) != tried.end();
  const bool dialled = choice < dialled_;
  const int state = avoid ? 4 : !worker.failure().ok() ? 3 : ejected || !dialled ? 2 : worker.connected() ? 0 : 1;
  return 2 * state + (choice < of_family_ ? 0 : 1);
}

bool Target::connected() const {
  return std::any_of(choices_.begin(), choices_.end(), [](const Choice& choice) { return choice.worker->connected(); });
}

std::vector<WorkerAddress> Target::addresses() const {
  std::vector<WorkerAddress> addresses;
  for (const Place& place : places_) addresses.push_back({place.address});
  return addresses;
}

std::vector<WorkerAddress> Target::NextAddresses() {
  std::vector<WorkerAddress> next = addresses();
  const auto of_family = next.begin() + static_cast<std::ptrdiff_t>(of_family_);
  std::rotate(next.begin(), next.begin() + static_cast<std::ptrdiff_t>(next_dial_++ % of_family_), of_family);
  return next;
}

void Target::OnReached(const WorkerAddress& address) {
  for (const Choice& choice : choices_) {
    if (choice.worker->target() == address.text) choice.worker->ConnectNow();
  }
  searched_ = true;
  const bool is_ipv6 = IsIpv6(address);
  if (std::exchange(prefers_ipv6_, is_ipv6) != is_ipv6) OrderFamilies();
}

// Literals are looked up, too: the executor returns their address at once.
void Target::LookUp() {
  looked_ = loop_.now();
  look_up_ = loop_.executor().Resolve(name_, [this](absl::StatusOr<std::vector<WorkerAddress>> addresses) {
    look_up_.reset();
    first_look_up_.End();
    OnAddresses(std::move(addresses));
    looked_up_ = true;
    Notify();
  });
}

// A failed look-up does not change the workers: a wrong response of the name server is more likely than the end of all
// workers.
void Target::OnAddresses(absl::StatusOr<std::vector<WorkerAddress>> addresses) {
  if (!addresses.ok() || addresses->empty()) {
    const absl::string_view why = addresses.ok() ? "the name has no address" : addresses.status().message();
    failure_ = absl::UnavailableError(absl::StrCat(name_, ": ", why));
    return;
  }
  // Remove addresses that may not be called before the choice of a family: they do not show which family can be
  // reached.
  std::erase_if(*addresses, [this](const WorkerAddress& address) {
    const absl::Status checked = policy_->CheckAddress(name_, address.text).status();
    if (!checked.ok()) failure_ = checked;
    return !checked.ok();
  });
  SortByFamily(*addresses);
  places_.clear();
  for (const WorkerAddress& address : *addresses) {
    places_.push_back({address.text, std::string(policy_->CheckAddress(name_, address.text).value_or(""))});
  }
  OrderFamilies();
}

void Target::OrderFamilies() {
  const auto is_ipv6 = [](const Place& place) { return IsIpv6({place.address}); };
  if (prefers_ipv6_.has_value()) {
    std::stable_partition(places_.begin(), places_.end(),
                          [&](const Place& place) { return is_ipv6(place) == *prefers_ipv6_; });
  }
  of_family_ = std::count_if(places_.begin(), places_.end(),
                             [&](const Place& place) { return is_ipv6(place) == is_ipv6(places_.front()); });
  if (called_) FindWorkers();
}

void Target::FindWorkers() {
  std::vector<Choice> choices;  // made before the old ones end, so that workers that stay keep their connections
  for (const Place& place : places_)
    choices.push_back({loop_.workers().Find(place.address, tls_, host_), place.pattern});
  dialled_ = 0;
  if (choices.size() > 1 && ejections_ == nullptr) ejections_ = std::make_unique<WorkerEjections>(loop_);
  if (ejections_ != nullptr) {
    std::vector<size_t> rows;
    for (const Choice& choice : choices) rows.push_back(choice.worker->row());
    ejections_->SetWorkers(rows);
  }
  choices_ = std::move(choices);
}

}  // namespace sluice

#include "lib/sharing/shared_link_client.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// While no daemon divides the link, this number of processes can share it without losses.
constexpr int64_t kStartShare = 8;

int64_t StartBytes(const SharedLinkOptions& options, int64_t link_bytes) {
  return std::min(options.start_bytes.value_or(std::max<int64_t>(link_bytes / kStartShare, 1)), link_bytes);
}

auto FieldsOf(const SharedLinkOptions& options) {
  return std::tie(options.socket, options.application, options.weight, options.start_bytes, options.daemon_uid);
}

std::vector<std::string> NamesOf(const std::vector<TrafficClass>& classes) {
  std::vector<std::string> names;
  for (const TrafficClass& each : classes) names.push_back(each.name);
  return names;
}

class SharedLinkLessor final : public BudgetLessor {
 public:
  explicit SharedLinkLessor(SharedLinkOptions options) : options_(std::move(options)) {}

  absl::Status Validate() const override {
    if (absl::Status valid = LeaseClient::Validate(options_.socket, options_.application, options_.weight);
        !valid.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("share.", valid.message()));
    }
    if (options_.start_bytes.value_or(1) < 1) {
      return absl::InvalidArgumentError(absl::StrCat("share.start_bytes: ", *options_.start_bytes, " is below 1"));
    }
    return absl::OkStatus();
  }
  bool SameAs(const BudgetLessor& other) const override {
    const auto* const same = dynamic_cast<const SharedLinkLessor*>(&other);
    return same != nullptr && FieldsOf(options_) == FieldsOf(same->options_);
  }
  std::unique_ptr<LeasedBudget> Attach(LinkLoop& loop, AsioExecutor& executor, int64_t link_bytes) const override {
    return std::make_unique<SharedLinkClient>(loop, executor, options_, link_bytes);
  }

 private:
  const SharedLinkOptions options_;
};

}  // namespace

std::shared_ptr<const BudgetLessor> ShareLink(SharedLinkOptions options) {
  return std::make_shared<SharedLinkLessor>(std::move(options));
}

// The lease client applies a lease in its constructor already, on the caller's thread.
SharedLinkClient::SharedLinkClient(LinkLoop& loop, AsioExecutor& executor, const SharedLinkOptions& options,
                                   int64_t link_bytes)
    : loop_(loop),
      executor_(executor),
      client_(executor.context(), {.socket = options.socket,
                                   .application = options.application,
                                   .weight = options.weight,
                                   .classes = NamesOf(loop.schedule().options().classes),
                                   .start_bytes = StartBytes(options, link_bytes),
                                   .link_bytes = link_bytes,
                                   .daemon_uid = options.daemon_uid,
                                   .demand = [&loop] { return loop.schedule().Demand(loop.now()); },
                                   .apply =
                                       [&loop](const BudgetLease& lease) {
                                         loop.executor().Post([&loop, lease] { loop.SetLease(lease).IgnoreError(); });
                                       },
                                   .on_state = options.on_state}) {
  executor_.Post([this] {
    loop_.schedule_run().SetDemandWatcher([this](const LinkDemand& demand) { client_.OnDemand(demand); });
  });
}

SharedLinkClient::~SharedLinkClient() {
  executor_.Await([this] { loop_.schedule_run().SetDemandWatcher(nullptr); });
}

}  // namespace sluice

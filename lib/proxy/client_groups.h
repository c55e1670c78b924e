#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/proxy/fair_shares.h"
#include "lib/proxy/held_bytes.h"
#include "lib/proxy/proxy_metrics.h"

namespace sluice {

class ClientGroup;

// The limits of a proxy of which each group of clients has a share by number.
enum class ClientLimit { kConnections, kCalls, kTargets };
inline constexpr size_t kClientLimits = 3;

// The parts of a proxy's limits that a group of clients may have.
struct ClientShare {
  std::string name;   // of the group; empty: each client that the proxy can tell apart is a group of its own
  double weight = 1;  // its part of each limit, in proportion to the weights of the other groups
  // Bounds that hold even if nobody else needs the rest.
  int64_t connections = FairShares::kNoCap;
  int64_t calls = FairShares::kNoCap;
  int64_t targets = FairShares::kNoCap;
  int64_t held_bytes = FairShares::kNoCap;

  friend bool operator==(const ClientShare&, const ClientShare&) = default;
};

// One place in a limit that a client has: a connection, a call, or a target. It returns the place when it is destroyed,
// or when it gives way to another group. It may outlive the proxy. Used on the link's thread only.
class ClientCharge
    : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  ClientCharge() = default;
  ~ClientCharge() { Return(); }
  ClientCharge(const ClientCharge&) = delete;
  ClientCharge& operator=(const ClientCharge&) = delete;

  // Sets what ends the owner if it must give way. It runs while another client asks for a place.
  void SetGiveWay(std::function<void(const absl::Status& why)> give_way) { give_way_ = std::move(give_way); }
  // Idle owners give way first, starting with the one that is idle for the longest time. Otherwise the newest does.
  void SetIdle(bool idle);
  void Keep() { unlink(); }  // the owner cannot give way any more, and keeps its place
  void Return();

 private:
  friend class ClientGroups;

  std::function<void(const absl::Status& why)> give_way_;
  std::shared_ptr<ClientGroup> group_;  // null: it has no place
  ClientLimit limit_ = ClientLimit::kConnections;
};

// The clients that share a part of a proxy's limits: an entry of `clients`, or one user, certificate or listener. There
// is one while such a client has a connection, a call or a target. Used on the link's thread only.
class ClientGroup {
 public:
  ~ClientGroup();
  ClientGroup(const ClientGroup&) = delete;
  ClientGroup& operator=(const ClientGroup&) = delete;

  const std::string& name() const { return name_; }
  size_t index() const { return index_; }  // in each FairShares

 private:
  friend class ClientGroups;
  friend class ClientCharge;

  using Charges = boost::intrusive::list<ClientCharge, boost::intrusive::constant_time_size<false>>;
  struct Places {
    Charges idle;  // the one that is idle for the longest time first
    Charges busy;  // the newest last
  };
  // The state that outlives the proxy, for the calls that do.
  struct Table {
    std::array<FairShares, kClientLimits> shares;
    std::vector<ClientGroup*> groups{nullptr};  // by index; null: the index is free, or kStrangers
  };

  ClientGroup(std::shared_ptr<Table> table, std::string name, size_t index);

  const std::shared_ptr<Table> table_;
  const std::string name_;
  const size_t index_;
  std::array<Places, kClientLimits> places_;
};

// Decides which clients of a proxy may have a connection, a call or a target, and which ones give way to them. There is
// one for each proxy. Used on the link's thread only.
class ClientGroups {
 public:
  // Maximum number of groups. Clients of further ones, which no config names, are one group.
  static constexpr size_t kMaxGroups = 256;

  explicit ClientGroups(ProxyMetrics& metrics) : metrics_(metrics) {}

  // The index of clients that are not known yet, in FairShares of bytes: the group of all of them.
  static constexpr size_t kStrangers = 0;

  // `held` must outlive the groups, or the last call of Find.
  void AddHeld(absl::string_view name, HeldBytes& held) { held_.emplace_back(std::string(name), &held); }
  void SetLimit(ClientLimit limit, size_t most);

  // The group of this name, with this weight and these caps from now on.
  std::shared_ptr<ClientGroup> Find(const std::string& name, const ClientShare& share);
  // Takes a place for a client of the group, after others have given way if they must. Returns ResourceExhausted with
  // the limit, the group, and their values.
  absl::Status Take(const std::shared_ptr<ClientGroup>& group, ClientLimit limit, ClientCharge& charge);
  const FairShares& shares(ClientLimit limit) const { return table_->shares[static_cast<size_t>(limit)]; }

  // The texts of Take, for limits whose owner looks for room itself.
  absl::Status Refuse(const ClientGroup& group, ClientLimit limit, FairShares::Verdict::Kind why);
  void Charge(const std::shared_ptr<ClientGroup>& group, ClientLimit limit, ClientCharge& charge);

  // Brings the metrics of all groups up to date, and drops those of groups that are gone.
  void Report();

 private:
  bool GiveWay(ClientGroup& group, ClientLimit limit, bool idle_only);
  size_t FreeIndex();

  ProxyMetrics& metrics_;
  const std::shared_ptr<ClientGroup::Table> table_ = std::make_shared<ClientGroup::Table>();
  std::vector<std::pair<std::string, HeldBytes*>> held_;
  std::map<std::string, std::weak_ptr<ClientGroup>> groups_;
};

// The name of a limit in metrics, and as limits.NAME in the config.
absl::string_view ClientLimitName(ClientLimit limit);

}  // namespace sluice

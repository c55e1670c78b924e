#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace sluice {

// How a connection of a client was classified.
enum class ProxyConnection {
  kHttp2,            // HTTP/2 with prior knowledge
  kConnect,          // HTTP/2 within a tunnel of CONNECT
  kWorkerTunnel,     // something other than HTTP/2 for a worker, such as TLS; forwarded without a schedule
  kScheduledTunnel,  // likewise, with turns in the schedule
  kOtherTunnel,      // anything for a host that is not a worker; forwarded
  kRefused,
  kHandshakeFailed,  // TLS: the client showed no certificate or a wrong one, did not use TLS, or took too long
  kUnreachable,      // the target of CONNECT cannot be looked up or reached
};

// The other end of a forwarded tunnel: a worker, without or with turns in the schedule, or a host that is not a worker.
enum class TunnelKind { kWorker, kScheduled, kOther };

// The metrics of a proxy, in addition to the metrics of its link. There is one for each proxy. Used on the link's
// thread only; other threads may read the registry.
class ProxyMetrics {
 public:
  // Maximum number of methods with their own series. The others share one series, "other".
  static constexpr size_t kMaxMethods = 100;

  explicit ProxyMetrics(prometheus::Registry& registry);  // must outlive the metrics

  void CountConnection(ProxyConnection kind) { connections_total_[static_cast<size_t>(kind)]->Increment(); }
  // An open tunnel that is forwarded: `change` is 1 or -1. Bytes that come from its target.
  void CountTunnel(TunnelKind kind, int change) { tunnels_[static_cast<size_t>(kind)]->Increment(change); }
  void CountTunnelBytes(TunnelKind kind, size_t bytes) {
    tunnel_bytes_[static_cast<size_t>(kind)]->Increment(static_cast<double>(bytes));
  }
  // `workers` is the pattern that permitted the call's target; empty: no worker was chosen.
  void CountCall(const std::string& workers, absl::StatusCode code);
  // `exists`: a worker has responded as if it had such a method. Clients choose the names, so only methods that exist
  // at a worker get a series.
  void ObserveCall(const std::string& method, bool exists, absl::Duration took);
  void CountStuckCall() { stuck_calls_->Increment(); }
  // A client of the group was refused at a limit, or gave way. `reason` is "cap", "share" or "gave_way".
  void CountGroupRefusal(const std::string& group, absl::string_view limit, absl::string_view reason);
  // Sets the part of a limit that a group uses, and the part that it may always use.
  void SetGroupUse(const std::string& group, absl::string_view limit, int64_t used, int64_t share);
  void DropGroup(const std::string& group);  // its use
  void CountIdleEnd() { idle_ends_->Increment(); }
  void SetConnections(size_t connections) { connections_->Set(static_cast<double>(connections)); }
  void SetCalls(size_t calls) { calls_->Set(static_cast<double>(calls)); }
  void SetHeldBytes(int64_t bytes) { held_bytes_->Set(static_cast<double>(bytes)); }
  void SetHeldRequestBytes(int64_t bytes) { held_request_bytes_->Set(static_cast<double>(bytes)); }

 private:
  static constexpr size_t kConnectionKinds = 8;
  static constexpr size_t kTunnelKinds = 3;

  const std::array<prometheus::Counter*, kConnectionKinds> connections_total_;
  const std::array<prometheus::Gauge*, kTunnelKinds> tunnels_;
  const std::array<prometheus::Counter*, kTunnelKinds> tunnel_bytes_;
  prometheus::Family<prometheus::Counter>& calls_total_;
  prometheus::Family<prometheus::Histogram>& call_seconds_;
  prometheus::Counter* const stuck_calls_;
  prometheus::Counter* const idle_ends_;
  prometheus::Gauge* const connections_;
  prometheus::Gauge* const calls_;
  prometheus::Gauge* const held_bytes_;
  prometheus::Gauge* const held_request_bytes_;
  std::map<std::pair<std::string, absl::StatusCode>, prometheus::Counter*> calls_by_label_;
  std::map<std::string, prometheus::Histogram*> seconds_by_method_;
  struct GroupUse {
    prometheus::Gauge* used;
    prometheus::Gauge* share;
  };
  prometheus::Family<prometheus::Gauge>& group_used_;
  prometheus::Family<prometheus::Gauge>& group_share_;
  prometheus::Family<prometheus::Counter>& group_refusals_;
  std::map<std::string, std::map<std::string, GroupUse>> use_by_group_;  // and by limit
  std::set<std::string> refused_groups_;                                 // that have series of group_refusals_
};

}  // namespace sluice

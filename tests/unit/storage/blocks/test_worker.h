#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sluice/v1/sru_service.pb.h"

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/storage/stripe/stripe_store.h"
#include "tests/unit/fan_out/scripted_server.h"
#include "tests/watched.h"

namespace sluice::testing {

// What a worker does with one request, in place of its right answer.
struct Fault {
  enum class Kind { kNone, kHang, kError, kGarbage };
  Kind kind = Kind::kNone;
  absl::StatusCode code = absl::StatusCode::kOk;  // kError
  absl::Duration delay;                           // before whatever is answered
  std::function<void(std::string& data)> edit;    // of the answer's bytes
  std::optional<uint64_t> manifest_bytes;         // said to be the size of the whole manifest
  std::vector<v1::MissingSruRange> missing;       // said of the answer, which is zeros there
};
inline Fault Healthy() {
  return {};
}
inline Fault Hang() {
  return {.kind = Fault::Kind::kHang};
}
inline Fault Error(absl::StatusCode code) {
  return {.kind = Fault::Kind::kError, .code = code};
}
inline Fault Garbage() {
  return {.kind = Fault::Kind::kGarbage};
}
inline Fault Slow(absl::Duration delay) {
  return {.delay = delay};
}
inline Fault FlipByte() {
  return {.edit = [](std::string& data) { data.at(data.size() / 2) ^= 1; }};
}
inline Fault OneByteMore() {
  return {.edit = [](std::string& data) { data.push_back('x'); }};
}
inline Fault OneByteLess() {
  return {.edit = [](std::string& data) { data.pop_back(); }};
}

// A worker in this process, over the stripes below a folder, whose answers a test can spoil: the SruService without
// gRPC. Thread-safe.
class TestWorker {
 public:
  using SruFault = std::function<Fault(const v1::ReadSruRequest&)>;
  using ManifestFault = std::function<Fault(const v1::ReadManifestRequest&)>;
  using Counts = ScriptedServer::Counts;

  explicit TestWorker(const std::string& root);

  const std::string& address() const { return server_.address(); }

  // Asked for each request from now on, on the one thread of the worker.
  void SpoilSrus(SruFault fault);
  void SpoilManifests(ManifestFault fault);

  Counts counts() const { return server_.counts(); }
  // False when it did not come true in time.
  bool Await(const std::function<bool(const Counts&)>& condition) const { return server_.Await(condition); }

  void Stop() { server_.Stop(); }    // at once, as a process that dies: calls under way are lost
  void Start() { server_.Start(); }  // again, at the same address

 private:
  struct Faults {
    SruFault sru;
    ManifestFault manifest;
  };

  Script Play(const Seen& seen) const;
  Script ReadSru(const v1::ReadSruRequest& asked) const;
  Script ReadManifest(const v1::ReadManifestRequest& asked) const;

  const StripeStore store_;
  Watched<Faults> faults_;
  ScriptedServer server_;  // last: its thread uses the others
};

}  // namespace sluice::testing

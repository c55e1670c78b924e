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

// The behaviour of a worker for one request, instead of the right response.
struct Fault {
  enum class Kind { kNone, kHang, kError, kGarbage };
  Kind kind = Kind::kNone;
  absl::StatusCode code = absl::StatusCode::kOk;  // kError
  absl::Duration delay;                           // before any response
  std::function<void(std::string& data)> edit;    // changes the bytes of the response
  std::optional<uint64_t> manifest_bytes;         // reported as the size of the whole manifest
  std::vector<v1::MissingSruRange> missing;       // reported gaps of the response, with zeros in their places
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

// A worker in this process that serves the stripes below a folder. It implements the SruService without gRPC. A test
// can spoil its responses. Thread-safe.
class TestWorker {
 public:
  using SruFault = std::function<Fault(const v1::ReadSruRequest&)>;
  using ManifestFault = std::function<Fault(const v1::ReadManifestRequest&)>;
  using Counts = ScriptedServer::Counts;

  explicit TestWorker(const std::string& root);

  const std::string& address() const { return server_.address(); }

  // Sets the functions that return the fault of each later request. They are called on the one thread of the worker.
  void SpoilSrus(SruFault fault);
  void SpoilManifests(ManifestFault fault);

  Counts counts() const { return server_.counts(); }
  std::vector<Seen> seen() const { return server_.seen(); }
  // Returns false if the condition did not become true in time.
  bool Await(const std::function<bool(const Counts&)>& condition) const { return server_.Await(condition); }

  void Stop() { server_.Stop(); }    // at once, like a process that dies: open calls are lost
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
  ScriptedServer server_;  // last, since its thread uses the other members
};

}  // namespace sluice::testing

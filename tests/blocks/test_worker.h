#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/server.h>

#include "sluice/v1/sru_service.grpc.pb.h"

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "lib/stripe/stripe_store.h"
#include "lib/telemetry/io_thread.h"
#include "tests/eventually.h"

namespace sluice::testing {

// What a worker does with one request, in place of its right answer.
struct Fault {
  enum class Kind { kNone, kHang, kError, kGarbage };
  Kind kind = Kind::kNone;
  grpc::StatusCode code = grpc::StatusCode::OK;  // kError
  absl::Duration delay;                          // before whatever is answered
  std::function<void(std::string& data)> edit;   // of the answer's bytes
  std::optional<uint64_t> manifest_bytes;        // said to be the size of the whole manifest
  std::vector<v1::MissingSruRange> missing;      // said of the answer, which is zeros there
};
inline Fault Healthy() {
  return {};
}
inline Fault Hang() {
  return {.kind = Fault::Kind::kHang};
}
inline Fault Error(grpc::StatusCode code) {
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

// A worker in this process, over the stripes below a folder, whose answers a test can spoil. Thread-safe.
class TestWorker {
 public:
  using SruFault = std::function<Fault(const v1::ReadSruRequest&)>;
  using ManifestFault = std::function<Fault(const v1::ReadManifestRequest&)>;

  explicit TestWorker(const std::string& root);
  ~TestWorker();

  const std::string& address() const { return address_; }

  // Asked for each request from now on, on a thread of gRPC.
  void SpoilSrus(SruFault fault);
  void SpoilManifests(ManifestFault fault);

  // The requests that came in, those open now, the most that were open at once, those that the client cancelled.
  struct Counts {
    int requests = 0;
    int open = 0;
    int most_open = 0;
    int cancelled = 0;
  };
  Counts counts() const;
  // False when it did not come true in time.
  bool Await(const std::function<bool(const Counts&)>& condition) const;

  void Stop();   // at once, as a process that dies: calls under way are cancelled
  void Start();  // again, at the same address

 private:
  class Service;

  std::unique_ptr<Service> service_;
  std::string address_ = "127.0.0.1:0";
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace sluice::testing

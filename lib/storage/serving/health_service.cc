#include "lib/storage/serving/health_service.h"

#include <utility>

#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"

namespace sluice {
namespace {

// Returns the service name in the request.
absl::StatusOr<std::string> ServiceIn(grpc::ByteBuffer& request) {
  google::protobuf::StringValue message;
  grpc::ProtoBufferReader reader(&request);
  if (reader.status().ok() && message.ParseFromZeroCopyStream(&reader)) return message.value();
  return absl::InvalidArgumentError("the request is not a HealthCheckRequest");
}

grpc::ByteBuffer Answer(int status) {
  google::protobuf::Int32Value message;
  message.set_value(status);
  const grpc::Slice bytes(message.SerializeAsString());
  return grpc::ByteBuffer(&bytes, 1);
}

class UnservedCall final : public grpc::ServerGenericBidiReactor {
 public:
  explicit UnservedCall(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

const grpc::Status& NoRequest() {
  static const auto& status = *new grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no HealthCheckRequest");
  return status;
}

}  // namespace

class HealthService::CheckReactor final : public grpc::ServerGenericBidiReactor {
 public:
  explicit CheckReactor(const HealthService& health) : health_(health) { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    const absl::StatusOr<std::string> service = ok ? ServiceIn(request_) : absl::CancelledError("");
    if (!service.ok()) return Finish(NoRequest());
    const Status status = health_.CurrentStatus(*service);
    if (status == kServiceUnknown) return Finish({grpc::StatusCode::NOT_FOUND, "unknown service"});
    answer_ = Answer(status);
    StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
  }

  void OnDone() override { delete this; }

 private:
  const HealthService& health_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
};

// From OnReadDone on, the mutex of the service guards its state.
class HealthService::WatchReactor final : public grpc::ServerGenericBidiReactor {
 public:
  WatchReactor(HealthService& health, std::string peer) : health_(health), peer_(std::move(peer)) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    absl::StatusOr<std::string> service = ok ? ServiceIn(request_) : absl::CancelledError("");
    absl::MutexLock lock(&health_.mutex_);
    if (!service.ok()) return End(NoRequest());
    service_ = *std::move(service);
    health_.watches_.insert(this);
    health_.Tell(*this);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&health_.mutex_);
    writing_ = false;
    if (!ok) return End(grpc::Status::CANCELLED);
    health_.Tell(*this);
  }

  void OnCancel() override {
    absl::MutexLock lock(&health_.mutex_);
    End(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    {
      absl::MutexLock lock(&health_.mutex_);
      health_.watches_.erase(this);
      --health_.taken_watches_;
      const auto of_peer = health_.watches_of_.find(peer_);
      if (--of_peer->second == 0) health_.watches_of_.erase(of_peer);
    }
    delete this;
  }

  const std::string& service() const { return service_; }
  bool busy() const { return writing_ || ended_; }

  // Returns false if the client already has this status.
  bool Write(Status status) {
    if (told_ == status) return false;
    told_ = status;
    writing_ = true;
    answer_ = Answer(status);
    StartWrite(&answer_);
    return true;
  }

  void End(const grpc::Status& status) {
    if (std::exchange(ended_, true)) return;
    Finish(status);
  }

 private:
  HealthService& health_;
  const std::string peer_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
  std::string service_;
  std::optional<Status> told_;
  bool writing_ = false;
  bool ended_ = false;
};

void HealthService::SetReady(bool ready) {
  absl::MutexLock lock(&mutex_);
  ready_ = ready;
  for (WatchReactor* watch : watches_) Tell(*watch);
}

void HealthService::EndWatches() {
  absl::MutexLock lock(&mutex_);
  ending_ = true;
  for (WatchReactor* watch : watches_) Tell(*watch);
}

grpc::ServerGenericBidiReactor* HealthService::CreateReactor(grpc::GenericCallbackServerContext* context) {
  if (context->method() == "/grpc.health.v1.Health/Check") return new CheckReactor(*this);
  if (context->method() != "/grpc.health.v1.Health/Watch") {
    return new UnservedCall({grpc::StatusCode::UNIMPLEMENTED, ""});
  }
  if (!TakeWatch(context->peer())) return new UnservedCall({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many watches"});
  return new WatchReactor(*this, context->peer());
}

bool HealthService::TakeWatch(const std::string& peer) {
  absl::MutexLock lock(&mutex_);
  if (taken_watches_ >= kMaxWatches) return false;
  int& of_peer = watches_of_[peer];
  // All connections of a Unix socket have one address.
  if (of_peer >= kMaxWatchesOfPeer && !absl::StartsWith(peer, "unix")) return false;
  ++of_peer;
  ++taken_watches_;
  return true;
}

HealthService::Status HealthService::StatusOf(const std::string& service) const {
  if (service == "liveness") return kServing;
  if (!service.empty() && service != "readiness") return kServiceUnknown;
  return ready_ ? kServing : kNotServing;
}

HealthService::Status HealthService::CurrentStatus(const std::string& service) const {
  absl::MutexLock lock(&mutex_);
  return StatusOf(service);
}

// Has one write in progress at a time; when it ends, the next one sends the status of that moment.
void HealthService::Tell(WatchReactor& watch) {
  if (watch.busy() || watch.Write(StatusOf(watch.service())) || !ending_) return;
  watch.End({grpc::StatusCode::UNAVAILABLE, "the server is draining"});
}

}  // namespace sluice

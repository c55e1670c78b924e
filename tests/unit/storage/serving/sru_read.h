#pragma once

#include <functional>
#include <string>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include "sluice/v1/sru_service.grpc.pb.h"

namespace sluice {

// Appends the next message of a ReadSru to the previous ones.
inline void Append(const v1::ReadSruResponse& next, v1::ReadSruResponse& whole) {
  whole.mutable_data()->append(next.data());
  whole.mutable_missing()->MergeFrom(next.missing());
}

// Reads all messages of a ReadSru, and merges them into one. Blocks until the call has ended.
inline grpc::Status ReadSru(v1::SruService::Stub& stub, grpc::ClientContext& context, const v1::ReadSruRequest& request,
                            v1::ReadSruResponse& whole) {
  whole.Clear();
  const auto reader = stub.ReadSru(&context, request);
  for (v1::ReadSruResponse next; reader->Read(&next);) Append(next, whole);
  return reader->Finish();
}

// The same without blocking. It is one call, from construction to `done`, which is called once, on a thread of gRPC.
class AsyncSruRead final : public grpc::ClientReadReactor<v1::ReadSruResponse> {
 public:
  AsyncSruRead(v1::SruService::Stub& stub, v1::ReadSruRequest request, std::function<void(const grpc::Status&)> done)
      : request_(std::move(request)), done_(std::move(done)) {
    stub.async()->ReadSru(&context_, &request_, this);
    StartRead(&next_);
    StartCall();
  }

  grpc::ClientContext& context() { return context_; }
  const v1::ReadSruResponse& response() const { return whole_; }  // valid after `done`

  void OnReadDone(bool ok) override {
    if (!ok) return;
    Append(next_, whole_);
    StartRead(&next_);
  }
  void OnDone(const grpc::Status& status) override { done_(status); }

 private:
  const v1::ReadSruRequest request_;
  const std::function<void(const grpc::Status&)> done_;
  grpc::ClientContext context_;
  v1::ReadSruResponse next_;
  v1::ReadSruResponse whole_;
};

}  // namespace sluice

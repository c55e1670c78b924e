#include "tests/system/apps/health_watch.h"

#include <vector>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>

namespace sluice::testing {
namespace {

constexpr auto kTimeout = std::chrono::seconds(30);

std::string Bytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

}  // namespace

HealthWatch::HealthWatch(const std::string& address)
    : stub_(std::make_unique<grpc::GenericStub>(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
  context_.set_deadline(std::chrono::system_clock::now() + kTimeout);
  stream_ = stub_->PrepareCall(&context_, "/grpc.health.v1.Health/Watch", &queue_);
  stream_->StartCall(this);
  Step();
  const grpc::Slice empty;
  stream_->WriteLast(grpc::ByteBuffer(&empty, 1), grpc::WriteOptions(), this);
  Step();
}

HealthWatch::~HealthWatch() {
  context_.TryCancel();
  grpc::Status status;
  stream_->Finish(&status, this);
  Step();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

std::string HealthWatch::Next() {
  grpc::ByteBuffer answer;
  stream_->Read(&answer, this);
  if (!Step()) return "";
  const std::string bytes = Bytes(answer);
  if (bytes == "\x08\x01") return "SERVING";
  if (bytes == "\x08\x02") return "NOT_SERVING";
  return "UNKNOWN";
}

bool HealthWatch::Step() {
  void* tag = nullptr;
  bool ok = false;
  return queue_.Next(&tag, &ok) && ok;
}

}  // namespace sluice::testing

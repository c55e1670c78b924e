#include "lib/rpc/messages.h"

#include <grpcpp/support/proto_buffer_reader.h>

namespace sluice {

grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message) {
  const size_t bytes = message.ByteSizeLong();
  grpc::Slice slice(bytes);
  message.SerializeToArray(const_cast<uint8_t*>(slice.begin()), static_cast<int>(bytes));
  return grpc::ByteBuffer(&slice, 1);
}

absl::Status Parse(grpc::ByteBuffer& buffer, google::protobuf::MessageLite& message) {
  grpc::ProtoBufferReader reader(&buffer);
  if (!reader.status().ok() || !message.ParseFromZeroCopyStream(&reader)) {
    return absl::DataLossError("answered with bytes that are not the expected message");
  }
  return absl::OkStatus();
}

}  // namespace sluice

#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"

namespace sluice {

// Protobuf messages as gRPC's raw bytes. Parse takes the bytes out of `buffer`.
grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message);
absl::Status Parse(grpc::ByteBuffer& buffer, google::protobuf::MessageLite& message);

}  // namespace sluice

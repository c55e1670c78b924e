#include "lib/grpc_wire/response_head.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/metadata_fields.h"
#include "lib/grpc_wire/percent_encoding.h"

namespace sluice {
namespace {

HeaderList HttpHead(int http_status) {
  HeaderList fields;
  fields.push_back({":status", absl::StrCat(http_status)});
  fields.push_back({"content-type", "application/grpc"});
  return fields;
}

void AppendTrailers(const absl::Status& status, absl::string_view details, const Metadata& metadata,
                    HeaderList& fields) {
  fields.push_back({"grpc-status", absl::StrCat(static_cast<int>(status.code()))});
  if (!status.message().empty()) fields.push_back({"grpc-message", PercentEncode(status.message())});
  if (!details.empty()) fields.push_back({"grpc-status-details-bin", EncodeBinary(details)});
  AppendFields(metadata, fields);
}

}  // namespace

HeaderList ToHeaders(const ResponseHead& head) {
  constexpr int kOk = 200;
  HeaderList fields = HttpHead(kOk);
  if (!head.encoding.empty()) fields.push_back({"grpc-encoding", head.encoding});
  fields.push_back({"grpc-accept-encoding", "identity,gzip"});
  if (head.metadata != nullptr) AppendFields(*head.metadata, fields);
  return fields;
}

HeaderList ToTrailers(const absl::Status& status, absl::string_view details, const Metadata& metadata) {
  HeaderList fields;
  AppendTrailers(status, details, metadata, fields);
  return fields;
}

HeaderList ToTrailersOnly(const absl::Status& status, absl::string_view details, const Metadata& metadata,
                          int http_status) {
  HeaderList fields = HttpHead(http_status);
  AppendTrailers(status, details, metadata, fields);
  return fields;
}

}  // namespace sluice

#include "lib/grpc_wire/status_mapping.h"

#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using absl::StatusCode;

// Covers every row of gRPC's http-grpc-status-mapping.md, and some statuses that it does not list.
TEST(StatusMappingTest, OfHttpStatus) {
  struct Row {
    int http;
    StatusCode code;
  };
  for (const Row row :
       {Row{400, StatusCode::kInternal}, Row{401, StatusCode::kUnauthenticated},
        Row{403, StatusCode::kPermissionDenied}, Row{404, StatusCode::kUnimplemented},
        Row{429, StatusCode::kUnavailable}, Row{431, StatusCode::kInternal}, Row{502, StatusCode::kUnavailable},
        Row{503, StatusCode::kUnavailable}, Row{504, StatusCode::kUnavailable}, Row{200, StatusCode::kUnknown},
        Row{204, StatusCode::kUnknown}, Row{301, StatusCode::kUnknown}, Row{500, StatusCode::kUnknown},
        Row{0, StatusCode::kUnknown}}) {
    EXPECT_EQ(CodeOfHttpStatus(row.http), row.code) << row.http;
  }
}

// Covers every row of the table in gRPC's PROTOCOL-HTTP2.md, and some errors that it does not list.
TEST(StatusMappingTest, OfReset) {
  struct Row {
    uint32_t error;
    StatusCode code;
    const char* name;
  };
  for (const Row row :
       {Row{0, StatusCode::kInternal, "NO_ERROR"}, Row{1, StatusCode::kInternal, "PROTOCOL_ERROR"},
        Row{2, StatusCode::kInternal, "INTERNAL_ERROR"}, Row{3, StatusCode::kInternal, "FLOW_CONTROL_ERROR"},
        Row{4, StatusCode::kInternal, "SETTINGS_TIMEOUT"}, Row{5, StatusCode::kInternal, "STREAM_CLOSED"},
        Row{6, StatusCode::kInternal, "FRAME_SIZE_ERROR"}, Row{7, StatusCode::kUnavailable, "REFUSED_STREAM"},
        Row{8, StatusCode::kCancelled, "CANCEL"}, Row{9, StatusCode::kInternal, "COMPRESSION_ERROR"},
        Row{10, StatusCode::kInternal, "CONNECT_ERROR"}, Row{11, StatusCode::kResourceExhausted, "ENHANCE_YOUR_CALM"},
        Row{12, StatusCode::kPermissionDenied, "INADEQUATE_SECURITY"},
        Row{13, StatusCode::kInternal, "HTTP_1_1_REQUIRED"}, Row{14, StatusCode::kInternal, "unknown"},
        Row{0xffffffff, StatusCode::kInternal, "unknown"}}) {
    EXPECT_EQ(CodeOfReset(static_cast<Http2Error>(row.error)), row.code) << row.error;
    EXPECT_EQ(NameOf(static_cast<Http2Error>(row.error)), row.name) << row.error;
  }
}

TEST(ParseStatusTest, TakesEveryCode) {
  EXPECT_EQ(ParseStatus("0", "ignored"), absl::OkStatus());
  for (int code = 1; code <= 16; ++code) {
    EXPECT_EQ(ParseStatus(absl::StrCat(code), "why"), absl::Status(static_cast<StatusCode>(code), "why"));
  }
}

TEST(ParseStatusTest, DecodesTheMessage) {
  EXPECT_EQ(ParseStatus("5", "no%20key %C3%A9 100%"), absl::NotFoundError("no key \xc3\xa9 100%"));
}

TEST(ParseStatusTest, WhatIsNoCodeIsUnknown) {
  for (const char* code : {"", "17", "99", "-1", "+5", " 5", "5x", "x", "1.0", "99999999999999999999"}) {
    const absl::Status status = ParseStatus(code, "");
    EXPECT_EQ(status, absl::UnknownError(absl::StrCat("grpc-status \"", code, "\" is not a number from 0 to 16")));
  }
  EXPECT_EQ(ParseStatus("17", "wh%79").message(), "grpc-status \"17\" is not a number from 0 to 16; grpc-message: why");
}

}  // namespace
}  // namespace sluice

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/http2/recorder.h"

namespace sluice {

// A client session, and a server whose every byte comes from the test. The server has read the client's preface.
struct RawServer {
  explicit RawServer(Http2Session::Options options = {.stream_window_bytes = 6},
                     const std::string& first_bytes = raw::Settings() + raw::SettingsAck()) {
    options.side = Http2Session::Side::kClient;
    client = *Http2Session::Create(options, events);
    preface = raw::OutputFrames(*client);
    Say(first_bytes);
    answer_to_settings = raw::OutputFrames(*client);
  }

  void Say(const std::string& bytes) {
    const absl::Status status = client->Receive(bytes);
    EXPECT_TRUE(status.ok()) << status;
  }
  // Returns the frames that the client has sent since the last call.
  std::vector<raw::ReadFrame> Hear() { return raw::OutputFrames(*client); }

  // Opens a stream. The server has then received its HEADERS.
  int32_t Open(RecordedStream& call, uint32_t granted_bytes = 0) {
    const int32_t id = *client->Open(RequestHeaders(), "", true, granted_bytes, call);
    Hear();
    return id;
  }

  RecordedSession events;
  std::unique_ptr<Http2Session> client;
  std::vector<raw::ReadFrame> preface;
  std::vector<raw::ReadFrame> answer_to_settings;
};

}  // namespace sluice

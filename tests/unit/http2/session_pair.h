#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "lib/http2/session.h"
#include "tests/unit/http2/recorder.h"

namespace sluice {

// A client and a server whose outputs are carried to each other.
struct SessionPair {
  explicit SessionPair(Http2Session::Options client_options = {}, Http2Session::Options server_options = {}) {
    client_options.side = Http2Session::Side::kClient;
    server_options.side = Http2Session::Side::kServer;
    client = *Http2Session::Create(client_options, client_events);
    server = *Http2Session::Create(server_options, server_events);
  }

  // Carries bytes both ways until neither side has output. With a generator, cuts them at random places. Returns the
  // number of bytes.
  size_t Carry(std::mt19937_64* random = nullptr) {
    size_t carried = 0;
    while (client->wants_write() || server->wants_write()) {
      carried += CarryOnce(*client, *server, random);
      carried += CarryOnce(*server, *client, random);
    }
    return carried;
  }

  static size_t CarryOnce(Http2Session& from, Http2Session& to, std::mt19937_64* random = nullptr) {
    std::string bytes;
    from.Output(bytes);
    absl::string_view rest = bytes;
    while (!rest.empty()) {
      const size_t size = random == nullptr ? rest.size() : 1 + (*random)() % std::min<size_t>(rest.size(), 100);
      const absl::Status status = to.Receive(rest.substr(0, size));
      EXPECT_TRUE(status.ok()) << status;
      rest.remove_prefix(size);
    }
    return bytes.size();
  }

  // Returns the server's only stream.
  RecordedStream& served(int32_t id = 1) { return *server_events.streams.at(id); }

  RecordedSession client_events, server_events;
  std::unique_ptr<Http2Session> client, server;
};

}  // namespace sluice

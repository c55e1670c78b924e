// Makes calls of random sizes over a connection cut into random pieces, with grants and resets at random times. Every
// byte must arrive in order, and none before its grant. Every stream must close once.
#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/random_seed.h"
#include "tests/unit/http2/session_pair.h"

namespace sluice {
namespace {

using Kind = StreamEnd::Kind;

class RandomCalls {
 public:
  explicit RandomCalls(uint64_t seed)
      : random_(seed),
        window_bytes_(Between(0, 100)),
        pair_({.stream_window_bytes = window_bytes_, .connection_window_bytes = Between(65535, 200'000)},
              {.stream_window_bytes = Between(0, 5000),
               .connection_window_bytes = Between(65535, 200'000),
               .max_concurrent_streams = Between(1, 20),
               .max_unsent_bytes_per_stream = Between(1, 100'000)}) {
    pair_.server_events.on_stream = [this](int32_t id, RecordedStream& stream) {
      const auto call = calls_.find(id);
      if (call == calls_.end()) return;  // already reset when its request arrives
      call->second->served = &stream;
      stream.on_data = [this, id] { Grant(*pair_.server, id, 10'000); };
      stream.on_headers = [this, id] { Grant(*pair_.server, id, 10'000); };
      stream.on_writable = [this, id] { Answer(*calls_.at(id)); };
    };
    pair_.Carry(&random_);  // both sides then have the first windows
  }

  void Run() {
    while (finished_ < 100) {
      for (int i = Between(0, 4); i > 0; --i) Open();
      for (auto& [id, call] : calls_) Step(*call);
      if (Between(0, 1) == 0) {
        pair_.Carry(&random_);
      } else if (Between(0, 1) == 0) {
        SessionPair::CarryOnce(*pair_.client, *pair_.server, &random_);
      } else {
        SessionPair::CarryOnce(*pair_.server, *pair_.client, &random_);
      }
      if (testing::Test::HasFailure()) return;
      Check();
    }
  }

 private:
  struct Call {
    int32_t id = 0;
    RecordedStream client;
    RecordedStream* served = nullptr;  // null until the request has reached the server
    std::string request, response;
    size_t answered_bytes = 0;  // bytes of `response` given to the server's session
    bool answer_begun = false, answer_ended = false;
    uint64_t granted_bytes = 0;
    bool was_reset = false;
  };

  uint32_t Between(uint32_t least, uint32_t most) {
    return std::uniform_int_distribution<uint32_t>(least, most)(random_);
  }
  std::string RandomBytes(uint32_t most) {
    std::string bytes(Between(0, 2) == 0 ? 0 : Between(1, most), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }
  void Grant(Http2Session& session, int32_t id, uint32_t most) { session.Grant(id, Between(1, most)); }

  void Open() {
    auto call = std::make_unique<Call>();
    call->request = RandomBytes(20'000);
    call->response = RandomBytes(100'000);
    call->granted_bytes = Between(0, 1) == 0 ? 0 : Between(1, 50'000);
    const size_t slots = pair_.client->open_slots();
    const auto id = pair_.client->Open(RequestHeaders(), call->request, true,
                                       static_cast<uint32_t>(call->granted_bytes), call->client);
    ASSERT_EQ(id.ok(), slots > 0);
    if (!id.ok()) return;
    call->id = *id;
    calls_.emplace(*id, std::move(call));
  }

  void Step(Call& call) {
    if (call.served != nullptr && call.served->ends == 1) Answer(call);
    if (call.client.closed.empty() && Between(0, 3) == 0) {
      const uint32_t bytes = Between(1, 30'000);
      call.granted_bytes += bytes;
      pair_.client->Grant(call.id, bytes);
    }
    if (Between(0, 300) == 0) {
      call.was_reset = true;
      (Between(0, 1) == 0 ? pair_.client : pair_.server)->Reset(call.id, Http2Error::kCancel);
    }
  }

  void Answer(Call& call) {
    if (call.answer_ended || !call.served->closed.empty()) return;
    if (!std::exchange(call.answer_begun, true)) pair_.server->SendHeaders(call.id, ResponseHeaders(), false);
    const std::string part = call.response.substr(call.answered_bytes, Between(1, 40'000));
    if (!pair_.server->SendData(call.id, part, false).ok()) return;  // above the bound; OnWritable or Step retries
    call.answered_bytes += part.size();
    if (call.answered_bytes < call.response.size()) return;
    call.answer_ended = true;
    pair_.server->SendHeaders(call.id, Trailers(), true);
  }

  void Check() {
    for (auto it = calls_.begin(); it != calls_.end();) {
      Call& call = *it->second;
      const uint64_t window = window_bytes_ + call.granted_bytes;
      ASSERT_LE(call.client.window_bytes, window);
      ASSERT_EQ(call.client.data, call.response.substr(0, call.client.data.size()));
      if (call.served != nullptr) {
        ASSERT_EQ(call.served->data, call.request.substr(0, call.served->data.size()));
      }
      if (call.client.closed.empty() || (call.served != nullptr && call.served->closed.empty())) {
        ++it;
        continue;
      }
      if (call.client.closed[0].kind == Kind::kComplete) {
        ASSERT_EQ(call.client.data, call.response);
        ASSERT_EQ(call.client.headers.size(), 2);
        ASSERT_EQ(call.served->data, call.request);
      } else {
        ASSERT_TRUE(call.was_reset);
        ASSERT_TRUE(call.client.is(Kind::kReset, Http2Error::kCancel));
      }
      ++finished_;
      it = calls_.erase(it);
    }
    ASSERT_EQ(pair_.client->streams(), static_cast<size_t>(std::count_if(calls_.begin(), calls_.end(), [](auto& call) {
                return call.second->client.closed.empty();
              })));
  }

  std::mt19937_64 random_;
  const uint32_t window_bytes_;
  SessionPair pair_;
  std::map<int32_t, std::unique_ptr<Call>> calls_;
  int finished_ = 0;
};

TEST(Http2SessionRandom, EveryCallEndsAndNoByteComesUngranted) {
  const RandomSeed seed = TakeRandomSeed();
  for (uint64_t i = 0; i < (seed.replays ? 1 : 8); ++i) {
    SCOPED_TRACE(absl::StrCat("SLUICE_SEED=", seed.value + i));
    RandomCalls(seed.value + i).Run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace sluice

#include "lib/net/asio_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/asio_executor.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/net/test_stream.h"
#include "tests/wait_until.h"

namespace sluice {
namespace {

using testing::AddressOfNobody;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using testing::EventLog;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReceiveAll;
using testing::ReceiveAtLeast;
using testing::Reset;
using testing::RunOn;
using testing::SendAll;
using ::testing::SizeIs;
using ::testing::StartsWith;
using testing::TestListener;
using testing::TestStream;

std::string SomeBytes(size_t count) {
  std::string bytes(count, '\0');
  std::minstd_rand random(7);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<char>(random() >> 8); });
  return bytes;
}

void Echo(int fd) {
  while (true) {
    const std::string bytes = ReceiveAtLeast(fd, 1);
    if (bytes.empty()) return;
    SendAll(fd, bytes);
  }
}

std::string TemporarySocket() {
  return absl::StrCat("unix:", std::filesystem::temp_directory_path().string(), "/sluice-stream-", getpid());
}

class AsioStreamAddressTest : public ::testing::TestWithParam<const char*> {};

TEST_P(AsioStreamAddressTest, CarriesBytesBothWays) {
  const std::string address = std::string(GetParam()) == "unix:" ? TemporarySocket() : GetParam();
  if (address.starts_with("unix:")) unlink(address.c_str() + 5);
  AsioExecutor executor;
  {
    TestListener listener(address, Echo);
    TestStream stream(executor, listener.address());
    ASSERT_THAT(stream.log().Await(1), ElementsAre("connected"));
    stream.Write("question");
    EXPECT_EQ(stream.AwaitBytes(8), "question");
  }
  if (address.starts_with("unix:")) unlink(address.c_str() + 5);
}

INSTANTIATE_TEST_SUITE_P(Addresses, AsioStreamAddressTest,
                         ::testing::Values("127.0.0.1:0", "[::1]:0", "unix:", "unix-abstract:"));

// Parameter: the number of threads that carry the streams, in addition to the link's thread.
class AsioStreamTest : public ::testing::TestWithParam<size_t> {
 protected:
  AsioExecutor executor_{{.stream_threads = GetParam()}};
};

INSTANTIATE_TEST_SUITE_P(Threads, AsioStreamTest, ::testing::Values(0, 2));

TEST_P(AsioStreamTest, SaysWhereNobodyListens) {
  const WorkerAddress nobody = AddressOfNobody();
  TestStream stream(executor_, nobody);
  EXPECT_THAT(stream.log().Await(1),
              ElementsAre(absl::StrCat("ended: UNAVAILABLE: connect to ", nobody.text, ": Connection refused")));
  RunOn(executor_, [&] { EXPECT_EQ(stream.socket()->Tcp(), std::nullopt); });
}

TEST_P(AsioStreamTest, SaysWhichUnixSocketIsNotThere) {
  for (const char* address : {"unix:/nowhere/w", "unix-abstract:sluice-nobody"}) {
    TestStream stream(executor_, {address});
    EXPECT_THAT(stream.log().Await(1),
                ElementsAre(StartsWith(absl::StrCat("ended: UNAVAILABLE: connect to ", address))));
  }
}

TEST_P(AsioStreamTest, AUnixListenerWhoseQueueIsFullIsAnError) {
  TestListener listener("unix-abstract:", [](int fd) { ReceiveAll(fd); });
  std::vector<std::unique_ptr<TestStream>> streams;
  // The server accepts one connection, and its queue holds a few more.
  const auto refused = [&] {
    return !streams.empty() && streams.back()->log().Await(1)[0].find("temporarily unavailable") != std::string::npos;
  };
  while (!refused() && streams.size() < 100) {
    streams.push_back(std::make_unique<TestStream>(executor_, listener.address()));
  }
  EXPECT_LT(streams.size(), 100U);
}

TEST_P(AsioStreamTest, SaysWhatIsNoAddress) {
  for (const char* address : {"", "localhost:7000", "10.0.0.1", "10.0.0.1:0", "unix:", "10.0.0.1:99999"}) {
    TestStream stream(executor_, {address});
    EXPECT_THAT(stream.log().Await(1), ElementsAre(StartsWith(absl::StrCat("ended: INVALID_ARGUMENT: \"", address))));
  }
}

TEST_P(AsioStreamTest, TheEndOfTheOtherSideComesAfterItsBytes) {
  TestListener listener("127.0.0.1:0", [](int fd) {
    SendAll(fd, "all of it");
    shutdown(fd, SHUT_WR);
    ReceiveAll(fd);  // only the server's sending side has ended
  });
  TestStream stream(executor_, listener.address());
  EXPECT_THAT(stream.log().Await(2), ElementsAre("connected", "ended: OK"));
  EXPECT_EQ(stream.received(), "all of it");
}

TEST_P(AsioStreamTest, EachDirectionEndsByItself) {
  const std::string many = SomeBytes(4 << 20);
  for (const char* address : {"127.0.0.1:0", "unix-abstract:"}) {
    EventLog received;
    TestListener listener(address, [&](int fd) {
      SendAll(fd, "all of it");
      shutdown(fd, SHUT_WR);
      received.Add(ReceiveAll(fd) == many ? "many" : "other");
    });
    TestStream stream(executor_, listener.address(), nullptr, {.half_open = true});
    EXPECT_THAT(stream.log().Await(2), ElementsAre("connected", "half closed"));
    EXPECT_EQ(stream.received(), "all of it");
    stream.Write(many);
    RunOn(executor_, [&] { stream.socket()->EndWrites(); });
    EXPECT_THAT(received.Await(1), ElementsAre("many"));
    EXPECT_THAT(stream.log().Await(3), ElementsAre("connected", "half closed", "ended: OK"));
  }
}

TEST_P(AsioStreamTest, AStreamThatSendsNoMoreStillReceives) {
  TestListener listener("127.0.0.1:0", [](int fd) { SendAll(fd, "<" + ReceiveAll(fd) + ">"); });
  TestStream stream(executor_, listener.address(), nullptr, {.half_open = true});
  stream.log().Await(1);
  stream.Write("?");
  RunOn(executor_, [&] { stream.socket()->EndWrites(); });
  EXPECT_EQ(stream.AwaitBytes(3), "<?>");
  EXPECT_THAT(stream.log().Await(3), ElementsAre("connected", "half closed", "ended: OK"));
}

TEST_P(AsioStreamTest, APeerThatIsGoneAfterItsEndIsNoticed) {
  for (const char* address : {"127.0.0.1:0", "unix-abstract:"}) {
    EventLog goes;
    TestListener listener(address, [&](int fd) {
      shutdown(fd, SHUT_WR);
      goes.Await(1);
      Reset(fd);
    });
    TestStream stream(executor_, listener.address(), nullptr, {.half_open = true});
    EXPECT_THAT(stream.log().Await(2), ElementsAre("connected", "half closed"));
    goes.Add("");
    const std::vector<std::string> log = stream.log().Await(3);
    ASSERT_THAT(log, SizeIs(3));
    EXPECT_THAT(log[2], StartsWith("ended: UNAVAILABLE: "));
  }
}

TEST_P(AsioStreamTest, AStreamResetsItsPeer) {
  EventLog ends;
  TestListener listener("127.0.0.1:0", [&](int fd) {
    char byte = 0;
    ends.Add(recv(fd, &byte, 1, 0) < 0 ? std::strerror(errno) : "end");
  });
  TestStream stream(executor_, listener.address());
  stream.log().Await(1);
  RunOn(executor_, [&] { stream.socket()->Reset(); });
  EXPECT_THAT(ends.Await(1), ElementsAre("Connection reset by peer"));
  EXPECT_THAT(stream.log().events(), ElementsAre("connected"));
}

TEST_P(AsioStreamTest, AResetIsAnError) {
  TestListener listener("127.0.0.1:0", [](int fd) {
    ReceiveAtLeast(fd, 1);
    Reset(fd);
  });
  TestStream stream(executor_, listener.address());
  stream.log().Await(1);
  stream.Write("x");
  EXPECT_THAT(stream.log().Await(2),
              ElementsAre("connected",
                          absl::StrCat("ended: UNAVAILABLE: ", listener.address().text, ": Connection reset by peer")));
}

TEST_P(AsioStreamTest, WhatIsWrittenIntoAClosedConnectionIsAnErrorAndNoSignal) {
  TestListener listener("127.0.0.1:0", [](int fd) { SendAll(fd, "last words"); });
  bool ended = false;
  // Writes until the stream ends; each write posts the next.
  std::function<void(TestStream&)> write = [&](TestStream& stream) {
    if (ended) return;
    stream.socket()->Write(std::string(1000, 'x'));
    executor_.Post([&] { write(stream); });
  };
  TestStream stream(executor_, listener.address(), nullptr,
                    {.on_connected = write, .on_disconnected = [&](TestStream&) { ended = true; }});
  const std::vector<std::string> events = stream.log().Await(2);
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_THAT(events[1], AnyOf(std::string("ended: OK"), HasSubstr("Connection reset"), HasSubstr("Broken pipe")));
}

// Uses the link's thread alone: a stream thread would have read before it writes.
TEST(AsioStreamTurnTest, ReadsWhatCameBeforeAWriteFailed) {
  AsioExecutor executor;
  EventLog served;
  // The hook keeps the link's thread from reading until the peer is gone.
  TestStream::Hooks hooks{.on_connected = [&](TestStream& stream) {
    served.Await(1);
    stream.socket()->Write("x");
    EXPECT_THAT(stream.log().events(), SizeIs(1));
  }};
  TestListener listener("unix-abstract:", [&](int fd) {
    SendAll(fd, "why I go");
    shutdown(fd, SHUT_RDWR);
    served.Add("gone");
    ReceiveAll(fd);
  });
  TestStream stream(executor, listener.address(), nullptr, hooks);
  EXPECT_THAT(stream.log().Await(2),
              ElementsAre("connected", absl::StrCat("ended: UNAVAILABLE: ", listener.address().text, ": Broken pipe")));
  EXPECT_EQ(stream.received(), "why I go");
}

TEST_P(AsioStreamTest, KeepsWhatTheKernelDoesNotTakeForAPeerThatReadsSlowly) {
  EventLog go;
  std::string received;
  const std::string bytes = SomeBytes(20 << 20);
  TestListener listener("127.0.0.1:0", [&](int fd) {
    go.Await(1);
    received = ReceiveAtLeast(fd, bytes.size());
    SendAll(fd, "done");
    ReceiveAll(fd);
  });
  TestStream stream(executor_, listener.address());
  stream.log().Await(1);
  RunOn(executor_, [&] {
    for (size_t at = 0; at < bytes.size(); at += 100'000) stream.socket()->Write(bytes.substr(at, 100'000));
  });
  go.Add("read");
  EXPECT_EQ(stream.AwaitBytes(4), "done");
  EXPECT_TRUE(received == bytes);
}

TEST_P(AsioStreamTest, ReadsMoreThanOneBufferAndShares) {
  const std::string bytes = SomeBytes(20 << 20);
  TestListener listener("127.0.0.1:0", [&](int fd) { SendAll(fd, bytes); });
  TestListener other("127.0.0.1:0", Echo);
  TestStream small(executor_, other.address());
  small.log().Await(1);
  TestStream large(executor_, listener.address());
  for (size_t i = 1; i <= 20; ++i) {
    small.Write("x");
    EXPECT_THAT(small.AwaitBytes(i), SizeIs(i));
  }
  EXPECT_THAT(large.log().Await(2), ElementsAre("connected", "ended: OK"));
  EXPECT_TRUE(large.received() == bytes);
}

TEST(AsioStreamTurnTest, AFastPeerGetsOnlyItsShareOfATurn) {
  AsioExecutor executor;
  // All bytes are in the kernel before the read; 2 MB are eight buffers.
  const std::string bytes = SomeBytes(2 << 20);
  EventLog sent;
  TestListener listener("unix-abstract:", [&](int fd) {
    const int room = 16 << 20;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    for (size_t at = 0; at < bytes.size(); at += 65536) {
      if (send(fd, bytes.data() + at, 65536, MSG_NOSIGNAL | MSG_DONTWAIT) != 65536) break;
    }
    sent.Add("sent");
    ReceiveAll(fd);
  });
  std::vector<uint64_t> turns;
  TestStream stream(executor, listener.address(), nullptr,
                    {.on_connected = [&](TestStream&) { sent.Await(1); },
                     .on_bytes = [&](TestStream&) { turns.push_back(executor.turn()); }});
  stream.log().Await(1);
  stream.AwaitBytes(100'000);
  RunOn(executor, [&] {
    for (const uint64_t turn : turns) EXPECT_LE(std::count(turns.begin(), turns.end(), turn), 4);
  });
}

TEST_P(AsioStreamTest, DroppingItWhileItConnectsCallsNothing) {
  TestListener listener("127.0.0.1:0", Echo);
  for (const WorkerAddress& address : {listener.address(), AddressOfNobody(), WorkerAddress{"unix-abstract:sluice-no"},
                                       WorkerAddress{"no address"}, WorkerAddress{"192.0.2.1:7000"}}) {
    TestStream stream(executor_, AddressOfNobody());
    stream.log().Await(1);
    RunOn(executor_, [&] {
      stream.socket() = executor_.Connect(address, {}, stream);
      stream.socket().reset();
    });
    RunOn(executor_, [] {});
    EXPECT_THAT(stream.log().events(), SizeIs(1));
  }
}

TEST_P(AsioStreamTest, MayBeDroppedByEachOfItsEvents) {
  TestListener listener("127.0.0.1:0", [](int fd) {
    SendAll(fd, SomeBytes(1 << 20));
    ReceiveAll(fd);
  });
  const auto drop = [](TestStream& stream) { stream.socket().reset(); };
  {
    TestStream stream(executor_, listener.address(), nullptr, {.on_connected = drop});
    EXPECT_THAT(stream.log().Await(1), ElementsAre("connected"));
    RunOn(executor_, [] {});
    EXPECT_THAT(stream.received(), IsEmpty());
  }
  {
    TestStream stream(executor_, listener.address(), nullptr, {.on_bytes = drop});
    const size_t got = stream.AwaitBytes(1).size();
    RunOn(executor_, [] {});
    EXPECT_EQ(stream.received().size(), got);
    EXPECT_THAT(stream.log().events(), ElementsAre("connected"));
  }
  {
    TestStream stream(executor_, AddressOfNobody(), nullptr, {.on_disconnected = drop});
    EXPECT_THAT(stream.log().Await(1), SizeIs(1));
  }
}

TEST_P(AsioStreamTest, DroppingItEndsTheConnection) {
  EventLog served;
  TestListener listener("127.0.0.1:0", [&](int fd) { served.Add(ReceiveAll(fd)); });
  {
    TestStream stream(executor_, listener.address());
    stream.log().Await(1);
    stream.Write("goodbye");
  }
  EXPECT_THAT(served.Await(1), ElementsAre("goodbye"));
}

TEST_P(AsioStreamTest, WritesAfterTheEndAreDropped) {
  TestListener listener("127.0.0.1:0", [](int) {});
  TestStream stream(executor_, listener.address());
  EXPECT_THAT(stream.log().Await(2), SizeIs(2));
  stream.Write("x");
  RunOn(executor_, [&] { EXPECT_EQ(stream.socket()->Tcp(), std::nullopt); });
  EXPECT_THAT(stream.log().events(), SizeIs(2));
}

TEST_P(AsioStreamTest, TellsOfItsTcpConnection) {
  for (const char* address : {"127.0.0.1:0", "[::1]:0"}) {
    TestListener listener(address, Echo);
    TestStream stream(executor_, listener.address());
    stream.log().Await(1);
    stream.Write("question");
    stream.AwaitBytes(8);
    std::optional<TcpSocket> tcp;
    // With stream threads, a call starts the read for the next call.
    ASSERT_TRUE(WaitUntil(
        [&] {
          RunOn(executor_, [&] { tcp = stream.socket()->Tcp(); });
          return tcp.has_value() && tcp->info.received_bytes > 0;
        },
        testing::kPatience));
    EXPECT_NE(tcp->inode, 0U);
    EXPECT_TRUE(tcp->local.address().is_loopback());
    EXPECT_NE(tcp->local.port(), 0);
    EXPECT_THAT(listener.address().text, ::testing::EndsWith(absl::StrCat(":", tcp->remote.port())));
    EXPECT_EQ(tcp->info.received_bytes, 8U);
    EXPECT_GT(tcp->info.packet_payload_bytes, 0U);
  }
}

TEST_P(AsioStreamTest, AMappedAddressIsTheIpv4AddressThatItStandsFor) {
  TestListener listener("127.0.0.1:0", Echo);
  const std::string port = listener.address().text.substr(listener.address().text.rfind(':'));
  TestStream stream(executor_, {absl::StrCat("[::ffff:127.0.0.1]", port)});
  ASSERT_THAT(stream.log().Await(1), ElementsAre("connected"));
  RunOn(executor_, [&] {
    EXPECT_EQ(stream.socket()->Tcp()->remote.address().to_string(), "127.0.0.1");
    EXPECT_EQ(stream.socket()->Tcp()->local.address().to_string(), "127.0.0.1");
  });
}

TEST_P(AsioStreamTest, AUnixSocketHasNoTcp) {
  TestListener listener("unix-abstract:", Echo);
  TestStream stream(executor_, listener.address());
  ASSERT_THAT(stream.log().Await(1), ElementsAre("connected"));
  RunOn(executor_, [&] { EXPECT_EQ(stream.socket()->Tcp(), std::nullopt); });
}

TEST_P(AsioStreamTest, ManyConnectionsAtOnce) {
  constexpr int kStreams = 100;
  std::vector<std::unique_ptr<TestListener>> listeners;
  std::vector<std::unique_ptr<TestStream>> streams;
  for (int i = 0; i < kStreams; ++i) {
    listeners.push_back(std::make_unique<TestListener>("127.0.0.1:0", Echo));
    streams.push_back(std::make_unique<TestStream>(executor_, listeners.back()->address()));
  }
  const std::string bytes = SomeBytes(50'000);
  for (const auto& stream : streams) {
    ASSERT_THAT(stream->log().Await(1), ElementsAre("connected"));
    stream->Write(bytes);
  }
  for (const auto& stream : streams) EXPECT_TRUE(stream->AwaitBytes(bytes.size()) == bytes);
}

TEST(AsioStreamEndTest, StreamsMayGoAfterStop) {
  TestListener listener("127.0.0.1:0", Echo);
  AsioExecutor executor;
  std::unique_ptr<StreamSocket> socket;
  struct Silent final : StreamSocketEvents {
    void OnConnected() override {}
    void OnBytes(absl::string_view) override {}
    void OnDisconnected(absl::Status) override { ADD_FAILURE(); }
  } events;
  RunOn(executor, [&] { socket = executor.Connect(listener.address(), {}, events); });
  executor.Stop();
  socket.reset();
}

}  // namespace
}  // namespace sluice

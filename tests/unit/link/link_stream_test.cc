#include "sluice/link_stream.h"

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <sys/socket.h>

#include "lib/link/link_loop.h"
#include "tests/notification.h"
#include "tests/unit/link/link_stream_fixture.h"
#include "tests/unit/net/link_thread.h"

namespace sluice::testing {
namespace {

namespace asio = boost::asio;

TEST_F(LinkStreamTest, CarriesBytesBothWays) {
  for (const char* address : {"127.0.0.1:0", "[::1]:0"}) {
    const TestListener server(address, Echo);
    const auto stream = Connect(server.address());
    Write(*stream, "question");
    EXPECT_EQ(Read(*stream, 8), "question");
    EXPECT_TRUE(stream->is_open());
  }
}

TEST_F(LinkStreamTest, ConnectsByName) {
  const TestListener server("127.0.0.1:0", Echo);
  const auto stream = NewStream();
  Succeed(stream->async_connect("localhost", PortOf(server.address()), kOutcome));
  Write(*stream, "?");
  EXPECT_EQ(Read(*stream, 1), "?");
}

TEST_F(LinkStreamTest, LargeTransfersArriveWholeBothWaysAtOnce) {
  for (const bool shallow : {false, true}) {
    if (shallow) SetLink(Shallow());
    const TestListener server("127.0.0.1:0", Echo);
    const auto stream = Connect(server.address());
    const std::string bytes = SomeBytes(shallow ? 2 << 20 : 16 << 20);
    std::future<Outcome> written = asio::async_write(*stream, asio::buffer(bytes), kOutcome);
    EXPECT_TRUE(Read(*stream, bytes.size()) == bytes);
    EXPECT_EQ(Succeed(std::move(written)), bytes.size());
  }
}

TEST_F(LinkStreamTest, AThreadOfStreamsCarriesIt) {
  SetLink({.threads = 2});
  const TestListener server("127.0.0.1:0", Echo);
  const auto stream = Connect(server.address());
  const std::string bytes = SomeBytes(1 << 20);
  std::future<Outcome> written = asio::async_write(*stream, asio::buffer(bytes), kOutcome);
  EXPECT_TRUE(Read(*stream, bytes.size()) == bytes);
  EXPECT_EQ(Succeed(std::move(written)), bytes.size());
  stream->shutdown(asio::socket_base::shutdown_send);
  EXPECT_EQ(EndOf(*stream), asio::error::eof);
}

TEST_F(LinkStreamTest, WithoutAScheduleBytesPassAtOnce) {
  SetLink({.schedule = {.policy = SchedulePolicy::kUnscheduled}});
  const TestListener server("127.0.0.1:0", Echo);
  const auto stream = Connect(server.address());
  Write(*stream, "?");
  EXPECT_EQ(Read(*stream, 1), "?");
  EXPECT_EQ(link_->State().submitted_calls, 0);
}

TEST_F(LinkStreamTest, AReadFillsSeveralBuffersAndLeavesTheRest) {
  const TestListener server("127.0.0.1:0", Echo);
  const auto stream = Connect(server.address());
  Write(*stream, "abcdefgh");
  std::string first(3, '\0');
  std::string second(2, '\0');
  const std::array<asio::mutable_buffer, 2> buffers{asio::buffer(first), asio::buffer(second)};
  EXPECT_EQ(Succeed(asio::async_read(*stream, buffers, kOutcome)), 5U);
  EXPECT_EQ(first + second, "abcde");
  EXPECT_EQ(Succeed(stream->async_read_some(asio::mutable_buffer(), kOutcome)), 0U);
  EXPECT_EQ(Read(*stream, 3), "fgh");
}

TEST_F(LinkStreamTest, SynchronousCallsWaitOnTheirThread) {
  const TestListener server("127.0.0.1:0", Echo);
  LinkStream stream(*context_, link_);
  stream.connect("127.0.0.1", PortOf(server.address()));
  const std::string bytes = SomeBytes(100'000);
  std::thread writer([&] { EXPECT_EQ(asio::write(stream, asio::buffer(bytes)), bytes.size()); });
  std::string received(bytes.size(), '\0');
  EXPECT_EQ(asio::read(stream, asio::buffer(received)), bytes.size());
  writer.join();
  EXPECT_TRUE(received == bytes);
  Error error;
  stream.connect("127.0.0.1", PortOf(AddressOfNobody()), error);
  EXPECT_EQ(error, asio::error::connection_refused);
  EXPECT_THROW(asio::read(stream, asio::buffer(received)), boost::system::system_error);
}

TEST_F(LinkStreamTest, SynchronousCallsOnTheLinksThreadFail) {
  SetLink({.inline_callbacks = true});
  LinkStream stream(*context_, link_);
  Error error;
  link_->Await([&](LinkLoop&) { stream.connect("127.0.0.1", 1, error); });
  EXPECT_EQ(error, boost::system::errc::resource_deadlock_would_occur);
}

TEST_F(LinkStreamTest, ConnectReportsWhyItFailed) {
  const auto error_of = [&](const std::string& host, uint16_t port) {
    const auto stream = NewStream();
    const Error error = ErrorOf(stream->async_connect(host, port, kOutcome));
    EXPECT_FALSE(stream->is_open());
    EXPECT_EQ(EndOf(*stream), error);
    return error;
  };
  EXPECT_EQ(error_of("127.0.0.1", PortOf(AddressOfNobody())), asio::error::connection_refused);
  EXPECT_EQ(error_of("::1", PortOf(AddressOfNobody())), asio::error::connection_refused);
  EXPECT_EQ(error_of("no such name", 80), asio::error::host_not_found);
  EXPECT_EQ(error_of("", 80), asio::error::host_not_found);
  SetLink({.threads = 2});
  EXPECT_EQ(error_of("127.0.0.1", PortOf(AddressOfNobody())), asio::error::connection_refused);
  SetLink({.schedule = {.policy = SchedulePolicy::kBatches}});
  EXPECT_EQ(error_of("127.0.0.1", 80), asio::error::operation_not_supported);
}

TEST_F(LinkStreamTest, ATrafficClassIsFoundByName) {
  Link::Options options;
  options.schedule.classes = {{.name = "front"}, {.name = "back"}};
  SetLink(options);
  const TestListener server("127.0.0.1:0", Echo);
  LinkStream back(context_->get_executor(), link_, {.traffic_class = "back"});
  Succeed(back.async_connect("127.0.0.1", PortOf(server.address()), kOutcome));
  LinkStream unknown(context_->get_executor(), link_, {.traffic_class = "side"});
  EXPECT_EQ(ErrorOf(unknown.async_connect("127.0.0.1", PortOf(server.address()), kOutcome)),
            asio::error::invalid_argument);
}

TEST_F(LinkStreamTest, AStreamThatIsNotConnectedRefuses) {
  const auto stream = NewStream();
  EXPECT_FALSE(stream->is_open());
  EXPECT_EQ(EndOf(*stream), asio::error::bad_descriptor);
  EXPECT_EQ(ErrorOf(stream->async_write_some(asio::buffer("?", 1), kOutcome)), asio::error::bad_descriptor);
  Error error;
  stream->shutdown(asio::socket_base::shutdown_send, error);
  EXPECT_EQ(error, asio::error::bad_descriptor);
  stream->cancel();
  stream->close();
}

TEST_F(LinkStreamTest, ReadsEndWithTheBytesOfTheServerAndWritesFailLater) {
  const TestListener server("127.0.0.1:0", [](int fd) { SendAll(fd, "last words"); });
  const auto stream = Connect(server.address());
  EXPECT_EQ(Read(*stream, 10), "last words");
  EXPECT_EQ(EndOf(*stream), asio::error::eof);
  EXPECT_EQ(EndOf(*stream), asio::error::eof);
  const std::string bytes(1000, 'x');
  Error error;
  while (!error) error = ErrorOf(stream->async_write_some(asio::buffer(bytes), kOutcome));
  EXPECT_THAT(error, ::testing::AnyOf(asio::error::broken_pipe, asio::error::connection_reset));
}

TEST_F(LinkStreamTest, AResetIsAnError) {
  const TestListener server("127.0.0.1:0", [](int fd) {
    ReceiveAtLeast(fd, 1);
    Reset(fd);
  });
  const auto stream = Connect(server.address());
  Write(*stream, "?");
  EXPECT_EQ(EndOf(*stream), asio::error::connection_reset);
}

TEST_F(LinkStreamTest, TheServerReceivesTheEndAndStillResponds) {
  EventLog log;
  const TestListener server("127.0.0.1:0", [&](int fd) {
    log.Add(ReceiveAll(fd));
    SendAll(fd, "response");
  });
  const auto stream = Connect(server.address());
  Write(*stream, "request");
  stream->shutdown(asio::socket_base::shutdown_send);
  EXPECT_THAT(log.Await(1), ::testing::ElementsAre("request"));
  EXPECT_EQ(Read(*stream, 8), "response");
  EXPECT_EQ(EndOf(*stream), asio::error::eof);
  EXPECT_EQ(ErrorOf(stream->async_write_some(asio::buffer("?", 1), kOutcome)), asio::error::broken_pipe);
}

// Writes until a write is pending, because the server reads nothing. Counts the bytes of the writes before it.
std::future<Outcome> FillUp(LinkStream& stream, size_t& written) {
  const std::string bytes(256 << 10, 'x');
  while (true) {
    std::future<Outcome> write = stream.async_write_some(asio::buffer(bytes), kOutcome);
    if (write.wait_for(std::chrono::milliseconds(300)) != std::future_status::ready) return write;
    written += write.get().bytes;
  }
}

TEST_F(LinkStreamTest, TheEndWaitsForAPendingWrite) {
  Notification read;
  EventLog log;
  const TestListener server("127.0.0.1:0", [&](int fd) {
    read.Await();
    log.Add(std::to_string(ReceiveAll(fd).size()));
  });
  const auto stream = Connect(server.address());
  size_t written = 0;
  std::future<Outcome> last = FillUp(*stream, written);
  stream->shutdown(asio::socket_base::shutdown_send);
  read.Notify();
  written += Succeed(std::move(last));
  EXPECT_THAT(log.Await(1), ::testing::ElementsAre(std::to_string(written)));
}

TEST_F(LinkStreamTest, AServerThatEndsItsDirectionStillReceives) {
  EventLog log;
  const TestListener server("127.0.0.1:0", [&](int fd) {
    shutdown(fd, SHUT_WR);
    log.Add(ReceiveAll(fd));
  });
  const auto stream = Connect(server.address());
  EXPECT_EQ(EndOf(*stream), asio::error::eof);
  Write(*stream, "upload");
  stream->shutdown(asio::socket_base::shutdown_send);
  EXPECT_THAT(log.Await(1), ::testing::ElementsAre("upload"));
}

TEST_F(LinkStreamTest, ShutdownReceiveEndsReads) {
  const TestListener server("127.0.0.1:0", Echo);
  const auto stream = Connect(server.address());
  char byte = 0;
  std::future<Outcome> read = stream->async_read_some(asio::buffer(&byte, 1), kOutcome);
  stream->shutdown(asio::socket_base::shutdown_both);
  EXPECT_EQ(ErrorOf(std::move(read)), asio::error::eof);
  EXPECT_EQ(EndOf(*stream), asio::error::eof);
}

TEST_F(LinkStreamTest, CancelEndsARead) {
  const TestListener server("127.0.0.1:0", Echo);
  const auto stream = Connect(server.address());
  char byte = 0;
  std::future<Outcome> read = stream->async_read_some(asio::buffer(&byte, 1), kOutcome);
  EXPECT_EQ(EndOf(*stream), asio::error::already_started);
  stream->cancel();
  EXPECT_EQ(ErrorOf(std::move(read)), asio::error::operation_aborted);
  Write(*stream, "?");
  EXPECT_EQ(Read(*stream, 1), "?") << "the stream goes on";
}

TEST_F(LinkStreamTest, CancelEndsAConnectAndAWrite) {
  const SilentAddress silent;
  const auto stream = NewStream();
  std::future<Outcome> connect = stream->async_connect("127.0.0.1", PortOf(silent.address()), kOutcome);
  stream->cancel();
  EXPECT_EQ(ErrorOf(std::move(connect)), asio::error::operation_aborted);
  EXPECT_FALSE(stream->is_open());

  Notification done;
  const TestListener server("127.0.0.1:0", [&](int) { done.Await(); });
  Succeed(stream->async_connect("127.0.0.1", PortOf(server.address()), kOutcome));
  size_t written = 0;
  std::future<Outcome> write = FillUp(*stream, written);
  stream->cancel();
  EXPECT_EQ(ErrorOf(std::move(write)), asio::error::operation_aborted);
  EXPECT_EQ(ErrorOf(stream->async_write_some(asio::buffer("?", 1), kOutcome)), asio::error::operation_aborted);
  done.Notify();
}

TEST_F(LinkStreamTest, CloseEndsTheOperationsAndTheConnection) {
  EventLog log;
  const TestListener server("127.0.0.1:0", [&](int fd) { log.Add(ReceiveAll(fd)); });
  const auto stream = Connect(server.address());
  Write(*stream, "?");
  char byte = 0;
  std::future<Outcome> read = stream->async_read_some(asio::buffer(&byte, 1), kOutcome);
  stream->close();
  EXPECT_EQ(ErrorOf(std::move(read)), asio::error::operation_aborted);
  EXPECT_FALSE(stream->is_open());
  EXPECT_EQ(EndOf(*stream), asio::error::bad_descriptor);
  EXPECT_THAT(log.Await(1), ::testing::ElementsAre("?"));
  EXPECT_TRUE(Eventually([&] { return link_->State().in_flight_bytes == 0; }));
}

TEST_F(LinkStreamTest, MayConnectAgain) {
  const TestListener server("127.0.0.1:0", Echo);
  const auto stream = Connect(server.address());
  for (int i = 0; i < 3; ++i) {
    Succeed(stream->async_connect("127.0.0.1", PortOf(server.address()), kOutcome));
    Write(*stream, "?");
    EXPECT_EQ(Read(*stream, 1), "?");
  }
}

TEST_F(LinkStreamTest, MovesWithItsOperations) {
  const TestListener server("127.0.0.1:0", Echo);
  LinkStream first(*context_, link_);
  Succeed(first.async_connect("127.0.0.1", PortOf(server.address()), kOutcome));
  char byte = 0;
  std::future<Outcome> read = first.async_read_some(asio::buffer(&byte, 1), kOutcome);
  LinkStream second = std::move(first);
  Write(second, "?");
  EXPECT_EQ(Succeed(std::move(read)), 1U);
  second = LinkStream(*context_, link_);
  EXPECT_FALSE(second.is_open());
}

TEST_F(LinkStreamTest, MayBeDestroyedWithOperationsPending) {
  const TestListener server("127.0.0.1:0", Echo);
  const SilentAddress silent;
  auto stream = Connect(server.address());
  char byte = 0;
  std::future<Outcome> read = stream->async_read_some(asio::buffer(&byte, 1), kOutcome);
  auto connecting = NewStream();
  std::future<Outcome> connect = connecting->async_connect("127.0.0.1", PortOf(silent.address()), kOutcome);
  stream.reset();
  connecting.reset();
  EXPECT_EQ(ErrorOf(std::move(read)), asio::error::operation_aborted);
  EXPECT_EQ(ErrorOf(std::move(connect)), asio::error::operation_aborted);
}

// As sessions of Asio do: the handler keeps the stream.
TEST_F(LinkStreamTest, AHandlerMayKeepAndDestroyItsStream) {
  const TestListener server("127.0.0.1:0", [](int fd) {
    ReceiveAtLeast(fd, 1);
    SendAll(fd, "!");
  });
  std::promise<char> received;
  std::shared_ptr<LinkStream> stream = Connect(server.address());
  link_.reset();  // the stream has the last reference
  const auto byte = std::make_shared<char>();
  LinkStream& kept = *stream;
  kept.async_read_some(asio::buffer(byte.get(), 1), [&received, byte, stream](const Error&, size_t) mutable {
    stream.reset();
    received.set_value(*byte);
  });
  kept.async_write_some(asio::buffer("?", 1), [stream](const Error& error, size_t) { EXPECT_FALSE(error); });
  stream.reset();
  EXPECT_EQ(Get(received.get_future()), '!');
}

TEST_F(LinkStreamTest, AContextMayBeDestroyedWithOperationsPending) {
  Notification done;
  const TestListener server("127.0.0.1:0", [&](int fd) {
    done.Await();
    SendAll(fd, "late");
  });
  const auto alive = std::make_shared<int>();
  for (const bool runs : {true, false}) {
    auto context = std::make_unique<asio::io_context>();
    auto stream = std::make_shared<LinkStream>(*context, link_);
    LinkStream& pending = *stream;
    pending.async_connect("127.0.0.1", PortOf(server.address()), [&, alive, stream](const Error&) {
      auto byte = std::make_shared<char>();
      pending.async_read_some(asio::buffer(byte.get(), 1), [alive, stream, byte](const Error&, size_t) {
        ADD_FAILURE() << "the context was destroyed";
      });
    });
    stream.reset();
    if (runs) context->run_one();
    context.reset();
    EXPECT_EQ(alive.use_count(), 1);
  }
  done.Notify();
}

TEST_F(LinkStreamTest, AStreamMayOutliveItsContext) {
  const TestListener server("127.0.0.1:0", Echo);
  auto context = std::make_unique<asio::io_context>();
  LinkStream stream(*context, link_);
  const auto alive = std::make_shared<int>();
  stream.async_connect("127.0.0.1", PortOf(server.address()),
                       [alive](const Error&) { ADD_FAILURE() << "the context was destroyed"; });
  context.reset();
  EXPECT_EQ(alive.use_count(), 1);
  stream.close();
}

TEST_F(LinkStreamTest, HandlersRunOnTheirExecutor) {
  const TestListener server("127.0.0.1:0", Echo);
  const auto stream = Connect(server.address());
  asio::thread_pool pool(1);
  const auto strand = asio::make_strand(pool.get_executor());
  std::promise<bool> read;
  std::promise<bool> write;
  char byte = 0;
  stream->async_read_some(asio::buffer(&byte, 1), asio::bind_executor(strand, [&](const Error& error, size_t bytes) {
                            EXPECT_FALSE(error);
                            EXPECT_EQ(bytes, 1U);
                            read.set_value(strand.running_in_this_thread());
                          }));
  stream->async_write_some(asio::buffer("?", 1), [&](const Error&, size_t) {
    write.set_value(std::this_thread::get_id() == thread_.get_id());
  });
  EXPECT_TRUE(Get(read.get_future()));
  EXPECT_TRUE(Get(write.get_future()));
  pool.join();
}

// Runs each function before `execute` returns, as another thread may, and then notes how many copies are work.
struct NotingExecutor {
  struct Notes {
    std::atomic<int> works = 0;
    std::atomic<int> works_after_handler = -1;
  };

  static constexpr asio::execution::blocking_t::never_t query(asio::execution::blocking_t /*property*/) { return {}; }
  NotingExecutor require(asio::execution::outstanding_work_t::tracked_t /*property*/) const {
    ++notes->works;
    return {notes, std::shared_ptr<void>(nullptr, [notes = notes](void*) { --notes->works; })};
  }
  template <class Function>
  void execute(Function function) const {
    std::move(function)();
    notes->works_after_handler = notes->works.load();
  }
  friend bool operator==(const NotingExecutor& a, const NotingExecutor& b) noexcept { return a.notes == b.notes; }
  friend bool operator!=(const NotingExecutor& a, const NotingExecutor& b) noexcept { return a.notes != b.notes; }

  Notes* notes;
  std::shared_ptr<void> work = nullptr;
};

// Its context may end as soon as it has no work, and must not before the last copy of the executor is gone.
TEST_F(LinkStreamTest, AnExecutorHasWorkUntilNobodyUsesItAnyMore) {
  const TestListener server("127.0.0.1:0", Echo);
  const auto stream = Connect(server.address());
  NotingExecutor::Notes notes;
  std::promise<bool> ran;
  stream->async_write_some(asio::buffer("?", 1), asio::bind_executor(NotingExecutor{&notes}, [&](const Error&, size_t) {
                             ran.set_value(true);
                           }));
  EXPECT_TRUE(Get(ran.get_future()));
  EXPECT_TRUE(Eventually([&] { return notes.works_after_handler != -1; }));
  EXPECT_GT(notes.works_after_handler, 0);
  EXPECT_TRUE(Eventually([&] { return notes.works == 0; }));
}

TEST_F(LinkStreamTest, AStreamMayHaveAStrandForItsExecutor) {
  const TestListener server("127.0.0.1:0", Echo);
  LinkStream stream(asio::make_strand(*context_), link_);
  Succeed(stream.async_connect("127.0.0.1", PortOf(server.address()), kOutcome));
  Write(stream, "?");
  EXPECT_EQ(Read(stream, 1), "?");
}

TEST_F(LinkStreamTest, TheContextHasWorkWhileAnOperationIsPending) {
  const TestListener server("127.0.0.1:0", Echo);
  asio::io_context context;
  LinkStream stream(context, link_);
  stream.connect("127.0.0.1", PortOf(server.address()));
  std::optional<Error> error;
  char byte = 0;
  stream.async_read_some(asio::buffer(&byte, 1), [&](const Error& why, size_t) { error = why; });
  EXPECT_EQ(context.poll(), 0U);
  EXPECT_FALSE(context.stopped());
  stream.close();
  EXPECT_FALSE(error.has_value()) << "never within a call";
  EXPECT_EQ(context.run(), 1U);
  EXPECT_EQ(error, Error(asio::error::operation_aborted));
}

TEST_F(LinkStreamTest, AServerIsHeldBackWhileNobodyReads) {
  std::atomic<size_t> sent = 0;
  const TestListener server("127.0.0.1:0", [&](int fd) {
    sent = SendUntilFull(fd, 64 << 20);
    SendAll(fd, "!");
  });
  SetLink(Shallow());
  const auto stream = Connect(server.address());
  EXPECT_TRUE(Eventually([&] { return sent > 0; }));
  EXPECT_LT(sent, 64U << 20);
  EXPECT_TRUE(Eventually([&] { return link_->State().in_flight_bytes == 0; })) << "it holds no window";
  std::string received;
  EXPECT_GT(Succeed(asio::async_read_until(*stream, asio::dynamic_buffer(received), '!', kOutcome)), sent.load());
}

TEST_F(LinkStreamTest, StreamsOfOneLinkShareItsBudget) {
  SetLink(Shallow());
  constexpr size_t kStreams = 8;
  std::atomic<int64_t> most_bytes = 0;
  const auto serve = [&](int fd) {
    while (!ReceiveAtLeast(fd, 1).empty()) {
      // Look whenever a server receives a request.
      const int64_t bytes = link_->State().in_flight_bytes;
      for (int64_t most = most_bytes; bytes > most && !most_bytes.compare_exchange_weak(most, bytes);) continue;
      SendAll(fd, SomeBytes(30'000));
    }
  };
  std::vector<std::unique_ptr<TestListener>> servers;
  std::vector<std::unique_ptr<LinkStream>> streams;
  for (size_t i = 0; i < kStreams; ++i) {
    servers.push_back(std::make_unique<TestListener>("127.0.0.1:0", serve));
    streams.push_back(Connect(servers.back()->address()));
  }
  const std::string expected = SomeBytes(30'000);
  for (int block = 0; block < 5; ++block) {
    std::vector<std::string> received(kStreams, std::string(expected.size(), '\0'));
    std::vector<std::future<Outcome>> operations;
    for (size_t i = 0; i < kStreams; ++i) {
      operations.push_back(asio::async_write(*streams[i], asio::buffer("?", 1), kOutcome));
      operations.push_back(asio::async_read(*streams[i], asio::buffer(received[i]), kOutcome));
    }
    for (auto& operation : operations) Succeed(std::move(operation));
    for (const std::string& bytes : received) EXPECT_TRUE(bytes == expected);
  }
  EXPECT_GT(most_bytes, 2 * 1448);
  EXPECT_LE(most_bytes, 10'000);
  EXPECT_TRUE(Eventually([&] { return link_->State().in_flight_bytes == 0; }));
}

}  // namespace
}  // namespace sluice::testing

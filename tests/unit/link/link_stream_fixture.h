#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "sluice/link_stream.h"

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/worker_address.h"
#include "tests/eventually.h"
#include "tests/unit/net/test_listener.h"

namespace sluice::testing {

inline std::string SomeBytes(size_t count, uint32_t seed = 7) {
  std::string bytes(count, '\0');
  std::minstd_rand random(seed);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<char>(random() >> 8); });
  return bytes;
}

// A completion token: the operation returns a future of its outcome. Unlike boost::asio::use_future it throws no
// exception, in whose reference counts ThreadSanitizer sees races, and its handler runs on the executor of the stream.
struct UseOutcome {};
inline constexpr UseOutcome kOutcome;
struct Outcome {
  boost::system::error_code error;
  size_t bytes = 0;
};

}  // namespace sluice::testing

template <class... Results>
class boost::asio::async_result<sluice::testing::UseOutcome, void(boost::system::error_code, Results...)> {
 public:
  using return_type = std::future<sluice::testing::Outcome>;

  template <class Initiation, class... Arguments>
  static return_type initiate(Initiation&& initiation, sluice::testing::UseOutcome, Arguments&&... arguments) {
    auto promise = std::make_shared<std::promise<sluice::testing::Outcome>>();
    return_type outcome = promise->get_future();
    std::forward<Initiation>(initiation)(
        [promise = std::move(promise)](boost::system::error_code error, Results... bytes) {
          promise->set_value({error, bytes...});
        },
        std::forward<Arguments>(arguments)...);
    return outcome;
  }
};

namespace sluice::testing {

// A server that sends back each byte.
inline void Echo(int fd) {
  while (true) {
    const std::string bytes = ReceiveAtLeast(fd, 1);
    if (bytes.empty()) return;
    SendAll(fd, bytes);
  }
}

// A port of 1 Gbit/s whose buffer holds two windows.
inline Link::Options Shallow() {
  LinkProfile profile;
  profile.capacity_bytes_per_second = 1e9 / 8;
  profile.propagation_rtt = absl::Microseconds(100);
  profile.buffer_bytes = 10'000;
  profile.packet_payload_bytes = 1448;
  profile.frame_bytes = 1514;
  return {.schedule = {.profile = profile}, .budget = {.floor_bytes = 10'000, .limit_bytes = 10'000}};
}

// A link, and a thread that runs the handlers of its streams.
class LinkStreamTest : public ::testing::Test {
 protected:
  using Error = boost::system::error_code;

  LinkStreamTest() { SetLink({}); }
  ~LinkStreamTest() override { StopContext(); }

  void SetLink(const Link::Options& options) { link_ = *Link::Create(options); }
  void StopContext() {
    if (!thread_.joinable()) return;
    context_->stop();
    thread_.join();
  }

  static uint16_t PortOf(const WorkerAddress& address) {
    return static_cast<uint16_t>(ParseWorkerTarget(address.text)->port);
  }
  static std::string HostOf(const WorkerAddress& address) { return ParseWorkerTarget(address.text)->host; }
  std::unique_ptr<LinkStream> NewStream() { return std::make_unique<LinkStream>(*context_, link_); }
  std::unique_ptr<LinkStream> Connect(const WorkerAddress& address) {
    auto stream = NewStream();
    Succeed(stream->async_connect(HostOf(address), PortOf(address), kOutcome));
    return stream;
  }

  // The result of a task, which must end in time.
  template <class Result>
  static Result Get(std::future<Result> result) {
    if (result.wait_for(absl::ToChronoMilliseconds(kPatience)) != std::future_status::ready) {
      ADD_FAILURE() << "the operation does not end";
      std::abort();
    }
    return result.get();
  }
  // The bytes of an operation, which must succeed, and the error of one that must fail.
  static size_t Succeed(std::future<Outcome> operation) {
    const Outcome outcome = Get(std::move(operation));
    EXPECT_FALSE(outcome.error) << outcome.error.message();
    return outcome.bytes;
  }
  static Error ErrorOf(std::future<Outcome> operation) { return Get(std::move(operation)).error; }
  template <class Stream>
  static void Write(Stream& stream, absl::string_view bytes) {
    const auto buffer = boost::asio::buffer(bytes.data(), bytes.size());
    EXPECT_EQ(Succeed(boost::asio::async_write(stream, buffer, kOutcome)), bytes.size());
  }
  template <class Stream>
  static std::string Read(Stream& stream, size_t count) {
    std::string bytes(count, '\0');
    Succeed(boost::asio::async_read(stream, boost::asio::buffer(bytes), kOutcome));
    return bytes;
  }
  static Error EndOf(LinkStream& stream) {
    char byte = 0;
    return ErrorOf(stream.async_read_some(boost::asio::buffer(&byte, 1), kOutcome));
  }

  std::shared_ptr<Link> link_;
  const std::unique_ptr<boost::asio::io_context> context_ = std::make_unique<boost::asio::io_context>();
  const boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{context_->get_executor()};
  std::thread thread_{[this] { context_->run(); }};
};

}  // namespace sluice::testing

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

// Boost 1.74 needs the header utility before it in C++20.
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/execution/executor.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/socket_base.hpp>
#include <boost/beast/core/role.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>

#include "sluice/link.h"

namespace sluice {

// A TCP connection to a server of any protocol, for code that uses Boost.Asio. Its bytes follow the schedule of the
// link: the receive window of the connection is the grant, and a request leaves once the window of its response fits
// the budget. The server needs no change. With the policy `unscheduled`, bytes pass at once.
//
// It is an AsyncStream and a SyncStream, like boost::asio::ip::tcp::socket. Boost.Beast, TLS
// (boost::asio::ssl::stream<LinkStream>) and other templates of a stream run over it. See docs/guides/streams.md.
//
// Handlers run on their associated executor, by default on the executor of the stream, and never within the call that
// starts their operation. At most one read and one write may be pending at a time. Errors are those of a socket. Reads
// end with boost::asio::error::eof after the last byte of the server, which may still receive.
//
// A write completes once the kernel has accepted the bytes. Before that it waits for its turn, so put a timeout around
// a request and its response together. If the application does not read, the stream keeps up to 512 KiB and then holds
// the server back.
//
// The stream keeps the link. Calls on one stream must not overlap, as on a socket. Different streams are independent.
// The stream may be destroyed with operations pending, which end with operation_aborted. If its execution context is
// destroyed, pending operations are destroyed, as those of a socket. Do not destroy the stream on the link's thread,
// which runs callbacks with Link::Options::inline_callbacks.
class LinkStream {
 public:
  struct Options {
    std::string traffic_class;  // name of one of ScheduleOptions::classes; empty: the first
  };

  using executor_type = boost::asio::any_io_executor;
  using lowest_layer_type = LinkStream;

  LinkStream(executor_type executor, std::shared_ptr<Link> link, Options options);
  LinkStream(executor_type executor, std::shared_ptr<Link> link);
  template <class Context, class = std::enable_if_t<std::is_convertible_v<Context&, boost::asio::execution_context&>>>
  LinkStream(Context& context, std::shared_ptr<Link> link) : LinkStream(context.get_executor(), std::move(link)) {}
  ~LinkStream();  // as close
  LinkStream(LinkStream&& other) noexcept;
  LinkStream& operator=(LinkStream&& other) noexcept;

  executor_type get_executor() noexcept { return executor_; }
  lowest_layer_type& lowest_layer() noexcept { return *this; }
  const lowest_layer_type& lowest_layer() const noexcept { return *this; }

  // Looks up `host`, a name or an IP address without brackets, and connects to the first of its addresses that accepts
  // (RFC 8305). Closes an earlier connection. The handler takes an error_code: host_not_found, connection_refused,
  // timed_out or another error of the last address; invalid_argument for an unknown traffic class;
  // operation_not_supported with the policy `batches`, which cannot schedule streams.
  template <class CompletionToken>
  auto async_connect(const std::string& host, uint16_t port, CompletionToken&& token) {
    return boost::asio::async_initiate<CompletionToken, void(boost::system::error_code)>(
        [this](auto handler, const std::string& host, uint16_t port) {
          StartConnect(host, port, Make<false>(std::move(handler), NoBuffers()));
        },
        token, host, port);
  }
  void connect(const std::string& host, uint16_t port);
  void connect(const std::string& host, uint16_t port, boost::system::error_code& error);

  // As with a socket. Reads the bytes that have arrived, at least one.
  template <class MutableBufferSequence, class CompletionToken>
  auto async_read_some(const MutableBufferSequence& buffers, CompletionToken&& token) {
    return boost::asio::async_initiate<CompletionToken, void(boost::system::error_code, size_t)>(
        [this](auto handler, const MutableBufferSequence& buffers) {
          StartRead(Make<true>(std::move(handler), buffers), boost::asio::buffer_size(buffers));
        },
        token, buffers);
  }
  template <class MutableBufferSequence>
  size_t read_some(const MutableBufferSequence& buffers, boost::system::error_code& error) {
    return Wait(buffers, error, [this, &buffers](std::unique_ptr<Operation> operation) {
      StartRead(std::move(operation), boost::asio::buffer_size(buffers));
    });
  }
  template <class MutableBufferSequence>
  size_t read_some(const MutableBufferSequence& buffers) {
    boost::system::error_code error;
    const size_t bytes = read_some(buffers, error);
    if (error) throw boost::system::system_error(error, "read_some");
    return bytes;
  }

  // As with a socket. Writes up to 256 KiB.
  template <class ConstBufferSequence, class CompletionToken>
  auto async_write_some(const ConstBufferSequence& buffers, CompletionToken&& token) {
    return boost::asio::async_initiate<CompletionToken, void(boost::system::error_code, size_t)>(
        [this](auto handler, const ConstBufferSequence& buffers) {
          StartWrite(FirstBytes(buffers), Make<true>(std::move(handler), NoBuffers()));
        },
        token, buffers);
  }
  template <class ConstBufferSequence>
  size_t write_some(const ConstBufferSequence& buffers, boost::system::error_code& error) {
    return Wait(NoBuffers(), error, [this, &buffers](std::unique_ptr<Operation> operation) {
      StartWrite(FirstBytes(buffers), std::move(operation));
    });
  }
  template <class ConstBufferSequence>
  size_t write_some(const ConstBufferSequence& buffers) {
    boost::system::error_code error;
    const size_t bytes = write_some(buffers, error);
    if (error) throw boost::system::system_error(error, "write_some");
    return bytes;
  }

  // Whether it is connected, or connecting. False after close, and after an async_connect that failed.
  bool is_open() const;
  // Ends the pending operations with operation_aborted. If a connect or write was pending, close the stream then: a
  // part of the bytes may have been sent.
  void cancel();
  void cancel(boost::system::error_code& error);
  // Half-close with shutdown_send: the server receives the end of the stream after all bytes, and may still respond.
  // After shutdown_receive reads end with eof.
  void shutdown(boost::asio::socket_base::shutdown_type what);
  void shutdown(boost::asio::socket_base::shutdown_type what, boost::system::error_code& error);
  // Ends the pending operations with operation_aborted, and the connection. async_connect may follow.
  void close();
  void close(boost::system::error_code& error);

  // Beast calls these at the end of a WebSocket.
  friend void beast_close_socket(LinkStream& stream) { stream.close(); }
  friend void teardown(boost::beast::role_type /*role*/, LinkStream& stream, boost::system::error_code& error) {
    stream.shutdown(boost::asio::socket_base::shutdown_send, error);
    stream.close();
  }
  template <class Handler>
  friend void async_teardown(boost::beast::role_type role, LinkStream& stream, Handler&& handler) {
    auto operation = stream.Make<false>(std::decay_t<Handler>(std::forward<Handler>(handler)), NoBuffers());
    boost::system::error_code error;
    teardown(role, stream, error);
    Operation& done = *operation;
    done.Complete(std::move(operation), error, 0);
  }

 private:
  class Connection;

  using NoBuffers = boost::asio::mutable_buffer;  // an empty one
  // A pending operation of the caller.
  class Operation {
   public:
    virtual ~Operation() = default;
    // Copies received bytes to the buffers of a read, and returns their number.
    virtual size_t Fill(const char* bytes, size_t count) = 0;
    // Completes the operation. The handler does not run before this returns. `self` is this operation.
    virtual void Complete(std::unique_ptr<Operation> self, boost::system::error_code error, size_t bytes) = 0;
  };
  template <class Buffers>
  class BufferedOperation;
  template <bool kCounts, class Handler, class Buffers>
  class AsyncOperation;
  template <class Buffers>
  class SyncOperation;

  template <bool kCounts, class Handler, class Buffers>
  std::unique_ptr<Operation> Make(Handler handler, const Buffers& buffers) {
    return std::make_unique<AsyncOperation<kCounts, Handler, Buffers>>(executor_, std::move(handler), buffers);
  }
  template <class Buffers, class Start>
  size_t Wait(const Buffers& buffers, boost::system::error_code& error, Start start);
  template <class ConstBufferSequence>
  static std::string FirstBytes(const ConstBufferSequence& buffers);
  // Whether the calling thread may wait for the link.
  bool MayWait(boost::system::error_code& error) const;

  void StartConnect(const std::string& host, uint16_t port, std::unique_ptr<Operation> operation);
  void StartRead(std::unique_ptr<Operation> operation, size_t wanted_bytes);
  void StartWrite(std::string bytes, std::unique_ptr<Operation> operation);

  static constexpr size_t kMostWrittenBytes = 256u << 10;

  std::shared_ptr<Link> link_;  // first: it is destroyed last
  executor_type executor_;
  Options options_;
  std::shared_ptr<Connection> connection_;  // null: closed
};

template <class Buffers>
class LinkStream::BufferedOperation : public Operation {
 public:
  explicit BufferedOperation(const Buffers& buffers) : buffers_(buffers) {}
  size_t Fill(const char* bytes, size_t count) final {
    return boost::asio::buffer_copy(buffers_, boost::asio::buffer(bytes, count));
  }

 private:
  const Buffers buffers_;
};

// Runs a handler on its executor. `kCounts`: the handler takes the number of bytes, too.
template <bool kCounts, class Handler, class Buffers>
class LinkStream::AsyncOperation final : public BufferedOperation<Buffers> {
 public:
  AsyncOperation(const executor_type& executor, Handler handler, const Buffers& buffers)
      : BufferedOperation<Buffers>(buffers),
        work_(Tracked(executor)),
        handler_work_(boost::asio::get_associated_executor(handler, executor)),
        handler_(std::move(handler)) {}

  void Complete(std::unique_ptr<Operation> self, boost::system::error_code error, size_t bytes) override {
    // `post` copies the executor. The context must not end while one of the copies exists, and the operation may be
    // gone by then.
    [[maybe_unused]] const auto work = Tracked(handler_work_.get_executor());
    // The handler stays in the operation until its executor runs it, so that no other thread destroys a part of it.
    boost::asio::post(handler_work_.get_executor(), [self = std::move(self), error, bytes]() mutable {
      Handler handler = std::move(static_cast<AsyncOperation&>(*self).handler_);
      self.reset();
      Run(std::move(handler), error, bytes);
    });
  }

 private:
  static void Run(Handler handler, boost::system::error_code error, [[maybe_unused]] size_t bytes) {
    if constexpr (kCounts) {
      std::move(handler)(error, bytes);
    } else {
      std::move(handler)(error);
    }
  }

  // Returns an executor that is work of its context for as long as it exists. An executor_work_guard keeps a second
  // copy, which is not, and destroys it last.
  template <class Executor>
  static auto Tracked(const Executor& executor) {
    if constexpr (boost::asio::execution::is_executor<Executor>::value) {
      return boost::asio::prefer(executor, boost::asio::execution::outstanding_work.tracked);
    } else {
      return boost::asio::make_work_guard(executor);
    }
  }

  const executor_type work_;
  const boost::asio::executor_work_guard<typename boost::asio::associated_executor<Handler, executor_type>::type>
      handler_work_;
  Handler handler_;
};

// Wakes the thread that waits for it.
template <class Buffers>
class LinkStream::SyncOperation final : public BufferedOperation<Buffers> {
 public:
  using Result = std::pair<boost::system::error_code, size_t>;

  explicit SyncOperation(const Buffers& buffers) : BufferedOperation<Buffers>(buffers) {}
  std::future<Result> result() { return result_.get_future(); }
  void Complete(std::unique_ptr<Operation> /*self*/, boost::system::error_code error, size_t bytes) override {
    result_.set_value({error, bytes});
  }

 private:
  std::promise<Result> result_;
};

template <class Buffers, class Start>
size_t LinkStream::Wait(const Buffers& buffers, boost::system::error_code& error, Start start) {
  if (!MayWait(error)) return 0;
  auto operation = std::make_unique<SyncOperation<Buffers>>(buffers);
  auto result = operation->result();
  start(std::move(operation));
  size_t bytes = 0;
  std::tie(error, bytes) = result.get();
  return bytes;
}

template <class ConstBufferSequence>
std::string LinkStream::FirstBytes(const ConstBufferSequence& buffers) {
  std::string bytes(std::min(boost::asio::buffer_size(buffers), kMostWrittenBytes), '\0');
  boost::asio::buffer_copy(boost::asio::buffer(bytes), buffers);
  return bytes;
}

}  // namespace sluice

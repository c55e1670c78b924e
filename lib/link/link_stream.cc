#include "sluice/link_stream.h"

#include <cerrno>
#include <mutex>
#include <set>
#include <string_view>

#include <boost/asio/error.hpp>
#include <boost/asio/execution/context_as.hpp>

#include "sluice/schedule.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/link/link_loop.h"
#include "lib/link/scheduled_connection.h"

namespace sluice {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// The server is held back above this number of received bytes that the user has not read, until half of them are.
constexpr size_t kMostUnreadBytes = 256u << 10;
// A stream without unread bytes keeps a buffer of at most this size.
constexpr size_t kMostIdleBytes = 64u << 10;

error_code SystemError(int error_number) {
  return {error_number, boost::system::system_category()};
}

error_code ErrorOf(const absl::Status& why, int error_number) {
  if (why.ok()) return asio::error::eof;
  if (error_number != 0) return SystemError(error_number);
  if (absl::IsNotFound(why)) return asio::error::host_not_found;
  return absl::IsDeadlineExceeded(why) ? asio::error::timed_out : asio::error::connection_aborted;
}

std::string TargetOf(const std::string& host, uint16_t port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

void ThrowIf(const error_code& error, const char* what) {
  if (error) throw boost::system::system_error(error, what);
}

}  // namespace

// One connection of a stream: its operations, and the bytes between the threads of the user and of the link. There is
// one for each async_connect. Handlers are only posted under the mutex, so that no operation completes while its
// execution context is being destroyed. Thread-safe.
class LinkStream::Connection final : public ScheduledConnection::User, public std::enable_shared_from_this<Connection> {
 public:
  // The connections of the streams of one execution context, which abandons them when it is destroyed. They keep the
  // list, because they may outlive the context.
  struct List {
    std::mutex mutex;
    std::set<std::shared_ptr<Connection>> connections;  // guarded by mutex
  };
  class Service;

  // `link` must exist while the user's functions run.
  Connection(const Link& link, std::shared_ptr<List> list) : link_(link), list_(std::move(list)) {}

  // The user's functions.
  void Connect(const std::string& host, uint16_t port, const std::string& traffic_class,
               std::unique_ptr<Operation> operation);
  void Read(std::unique_ptr<Operation> operation, size_t wanted_bytes);
  void Write(std::string bytes, std::unique_ptr<Operation> operation);
  bool is_open() const;
  void Cancel();
  error_code Shutdown(asio::socket_base::shutdown_type what);
  void Close();
  // Destroys the operations without completing them.
  void Abandon();

 private:
  struct Pending {
    std::unique_ptr<Operation> connect;
    std::unique_ptr<Operation> read;
    std::unique_ptr<Operation> write;
  };

  // ScheduledConnection::User, on the link's thread.
  void OnOpen() override;
  bool OnBytes(absl::string_view bytes) override;
  void OnWritten() override;
  void OnEnded() override;
  void OnOver(const absl::Status& why, int error_number) override;

  void Open(LinkLoop& loop, const std::string& target, const std::string& traffic_class);

  // The functions below need the mutex.

  // Passes the connection to `task` on the link's thread, unless it is over.
  template <class Task>
  void Post(Task task);
  void Break();  // ends the operations and the connection
  static void Complete(std::unique_ptr<Operation>& operation, const error_code& error, size_t bytes = 0) {
    if (operation == nullptr) return;
    Operation& completed = *operation;
    completed.Complete(std::move(operation), error, bytes);
  }
  // Sets the errors that are not set, and completes all operations.
  void EndWith(const error_code& read_error, const error_code& write_error);
  size_t unread_bytes() const { return received_.size() - read_bytes_; }

  const Link& link_;
  const std::shared_ptr<List> list_;

  mutable std::mutex mutex_;
  // Guarded by the mutex.
  Pending pending_;
  size_t written_bytes_ = 0;  // of the pending write
  std::string received_;      // bytes that the user has not read, behind read_bytes_ that it has
  size_t read_bytes_ = 0;
  bool connected_ = false;
  bool stuck_ = false;          // too many bytes are unread, and the server is held back
  bool reads_nothing_ = false;  // after shutdown_receive
  bool abandoned_ = false;
  error_code read_error_;  // what reads end with after the received bytes; none: more may come
  error_code write_error_;

  // Used on the link's thread. Null before Open, and after the end.
  LinkLoop* loop_ = nullptr;
  std::shared_ptr<ScheduledConnection> connection_;
};

// Registered with the execution context of the streams.
class LinkStream::Connection::Service final : public asio::execution_context::service {
 public:
  static inline asio::execution_context::id id;

  explicit Service(asio::execution_context& context) : service(context) {}
  const std::shared_ptr<List>& list() const { return list_; }

 private:
  void shutdown() noexcept override {
    std::set<std::shared_ptr<Connection>> connections;
    {
      const std::lock_guard<std::mutex> lock(list_->mutex);
      connections.swap(list_->connections);
    }
    for (const std::shared_ptr<Connection>& connection : connections) connection->Abandon();
  }

  const std::shared_ptr<List> list_ = std::make_shared<List>();
};

template <class Task>
void LinkStream::Connection::Post(Task task) {
  link_.Post([self = shared_from_this(), task = std::move(task)](LinkLoop& /*loop*/) mutable {
    if (self->connection_ != nullptr) task(*self->connection_);
  });
}

void LinkStream::Connection::Connect(const std::string& host, uint16_t port, const std::string& traffic_class,
                                     std::unique_ptr<Operation> operation) {
  {
    const std::lock_guard<std::mutex> lock(list_->mutex);
    list_->connections.insert(shared_from_this());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (abandoned_) return;
  pending_.connect = std::move(operation);
  link_.Post([self = shared_from_this(), target = TargetOf(host, port), traffic_class](LinkLoop& loop) {
    self->Open(loop, target, traffic_class);
  });
}

void LinkStream::Connection::Open(LinkLoop& loop, const std::string& target, const std::string& traffic_class) {
  const ScheduleOptions& options = loop.schedule().options();
  const absl::StatusOr<size_t> index = TrafficClassIndex(options.classes, traffic_class);
  error_code error;
  if (options.policy == SchedulePolicy::kBatches) error = asio::error::operation_not_supported;
  if (!index.ok()) error = asio::error::invalid_argument;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (read_error_) return;
  if (error) return EndWith(error, error);
  loop_ = &loop;
  connection_ = std::make_shared<ScheduledConnection>(loop, *index, *this);
  connection_->Connect(target);
}

void LinkStream::Connection::OnOpen() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (read_error_) return;
  connected_ = true;
  Complete(pending_.connect, error_code());
}

bool LinkStream::Connection::OnBytes(absl::string_view bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (read_error_ || reads_nothing_) return true;
  if (pending_.read != nullptr) {
    const size_t filled = pending_.read->Fill(bytes.data(), bytes.size());
    Complete(pending_.read, error_code(), filled);
    bytes.remove_prefix(filled);
  }
  received_.append(bytes.data(), bytes.size());
  stuck_ = unread_bytes() > kMostUnreadBytes;
  return !stuck_;
}

void LinkStream::Connection::OnWritten() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Complete(pending_.write, error_code(), written_bytes_);
}

void LinkStream::Connection::OnOver(const absl::Status& why, int error_number) {
  loop_->AtEndOfTurn([over = std::move(connection_)] {});
  const error_code error = ErrorOf(why, error_number);
  const std::lock_guard<std::mutex> lock(mutex_);
  EndWith(error, error == asio::error::eof ? SystemError(EPIPE) : error);
}

void LinkStream::Connection::OnEnded() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!read_error_) read_error_ = asio::error::eof;
  Complete(pending_.read, read_error_);
}

void LinkStream::Connection::EndWith(const error_code& read_error, const error_code& write_error) {
  if (!read_error_) read_error_ = read_error;
  if (!write_error_) write_error_ = write_error;
  Complete(pending_.connect, read_error_);
  Complete(pending_.read, read_error_);
  Complete(pending_.write, write_error);
}

void LinkStream::Connection::Read(std::unique_ptr<Operation> operation, size_t wanted_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (abandoned_) return;
  if (pending_.connect != nullptr) return Complete(operation, asio::error::not_connected);
  if (pending_.read != nullptr) return Complete(operation, asio::error::already_started);
  if (wanted_bytes == 0) return Complete(operation, error_code());
  if (unread_bytes() == 0) {
    if (read_error_) return Complete(operation, read_error_);
    pending_.read = std::move(operation);
    return;
  }
  const size_t filled = operation->Fill(received_.data() + read_bytes_, unread_bytes());
  read_bytes_ += filled;
  if (stuck_ && unread_bytes() <= kMostUnreadBytes / 2) {
    stuck_ = false;
    Post([](ScheduledConnection& connection) { connection.Resume(); });
  }
  if (2 * read_bytes_ >= received_.size()) received_.erase(0, std::exchange(read_bytes_, 0));
  if (received_.empty() && received_.capacity() > kMostIdleBytes) received_ = std::string();
  Complete(operation, error_code(), filled);
}

void LinkStream::Connection::Write(std::string bytes, std::unique_ptr<Operation> operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (abandoned_) return;
  if (pending_.connect != nullptr) return Complete(operation, asio::error::not_connected);
  if (pending_.write != nullptr) return Complete(operation, asio::error::already_started);
  if (write_error_ || bytes.empty()) return Complete(operation, write_error_);
  written_bytes_ = bytes.size();
  pending_.write = std::move(operation);
  Post([bytes = std::move(bytes)](ScheduledConnection& connection) mutable { connection.Write(std::move(bytes)); });
}

bool LinkStream::Connection::is_open() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return connected_ || !read_error_;
}

void LinkStream::Connection::Cancel() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pending_.connect != nullptr) return Break();
  if (pending_.write != nullptr) write_error_ = asio::error::operation_aborted;
  Complete(pending_.read, asio::error::operation_aborted);
  Complete(pending_.write, asio::error::operation_aborted);
}

error_code LinkStream::Connection::Shutdown(asio::socket_base::shutdown_type what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!connected_) return asio::error::not_connected;
  if (what != asio::socket_base::shutdown_receive && !write_error_) {
    write_error_ = SystemError(EPIPE);
    Post([](ScheduledConnection& connection) { connection.EndWrites(); });
  }
  if (what != asio::socket_base::shutdown_send) {
    reads_nothing_ = true;
    received_.clear();
    read_bytes_ = 0;
    Complete(pending_.read, asio::error::eof);
  }
  return {};
}

void LinkStream::Connection::Close() {
  {
    const std::lock_guard<std::mutex> lock(list_->mutex);
    list_->connections.erase(shared_from_this());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  Break();
}

void LinkStream::Connection::Break() {
  EndWith(asio::error::operation_aborted, asio::error::operation_aborted);
  received_.clear();
  read_bytes_ = 0;
  link_.Post([self = shared_from_this()](LinkLoop& loop) {
    if (self->connection_ == nullptr) return;
    self->connection_->Stop();
    loop.AtEndOfTurn([over = std::move(self->connection_)] {});
  });
}

void LinkStream::Connection::Abandon() {
  Pending abandoned;  // destroyed without the lock, since the handlers may own the stream
  const std::lock_guard<std::mutex> lock(mutex_);
  abandoned_ = true;
  std::swap(abandoned, pending_);
}

LinkStream::LinkStream(executor_type executor, std::shared_ptr<Link> link, Options options)
    : link_(std::move(link)), executor_(std::move(executor)), options_(std::move(options)) {}

LinkStream::LinkStream(executor_type executor, std::shared_ptr<Link> link)
    : LinkStream(std::move(executor), std::move(link), Options()) {}

LinkStream::~LinkStream() {
  close();
}

LinkStream::LinkStream(LinkStream&& other) noexcept = default;

LinkStream& LinkStream::operator=(LinkStream&& other) noexcept {
  if (this == &other) return *this;
  close();
  connection_ = std::move(other.connection_);
  link_ = std::move(other.link_);
  executor_ = std::move(other.executor_);
  options_ = std::move(other.options_);
  return *this;
}

void LinkStream::connect(const std::string& host, uint16_t port, error_code& error) {
  Wait(NoBuffers(), error,
       [&](std::unique_ptr<Operation> operation) { StartConnect(host, port, std::move(operation)); });
}

void LinkStream::connect(const std::string& host, uint16_t port) {
  error_code error;
  connect(host, port, error);
  ThrowIf(error, "connect");
}

bool LinkStream::MayWait(error_code& error) const {
  if (link_->CheckMayWait("").ok()) return true;
  error = SystemError(EDEADLK);
  return false;
}

void LinkStream::StartConnect(const std::string& host, uint16_t port, std::unique_ptr<Operation> operation) {
  close();
  asio::execution_context& context = asio::query(executor_, asio::execution::context_as<asio::execution_context&>);
  connection_ = std::make_shared<Connection>(*link_, asio::use_service<Connection::Service>(context).list());
  // Its handler may destroy the stream before Connect returns.
  const std::shared_ptr<Connection> connection = connection_;
  connection->Connect(host, port, options_.traffic_class, std::move(operation));
}

void LinkStream::StartRead(std::unique_ptr<Operation> operation, size_t wanted_bytes) {
  const std::shared_ptr<Connection> connection = connection_;
  if (connection != nullptr) return connection->Read(std::move(operation), wanted_bytes);
  Operation& failed = *operation;
  failed.Complete(std::move(operation), asio::error::bad_descriptor, 0);
}

void LinkStream::StartWrite(std::string bytes, std::unique_ptr<Operation> operation) {
  const std::shared_ptr<Connection> connection = connection_;
  if (connection != nullptr) return connection->Write(std::move(bytes), std::move(operation));
  Operation& failed = *operation;
  failed.Complete(std::move(operation), asio::error::bad_descriptor, 0);
}

bool LinkStream::is_open() const {
  return connection_ != nullptr && connection_->is_open();
}

void LinkStream::cancel() {
  if (connection_ != nullptr) connection_->Cancel();
}

void LinkStream::cancel(error_code& error) {
  error.clear();
  cancel();
}

void LinkStream::shutdown(asio::socket_base::shutdown_type what, error_code& error) {
  error = connection_ != nullptr ? connection_->Shutdown(what) : error_code(asio::error::bad_descriptor);
}

void LinkStream::shutdown(asio::socket_base::shutdown_type what) {
  error_code error;
  shutdown(what, error);
  ThrowIf(error, "shutdown");
}

void LinkStream::close() {
  const std::shared_ptr<Connection> connection = std::exchange(connection_, nullptr);
  if (connection != nullptr) connection->Close();
}

void LinkStream::close(error_code& error) {
  error.clear();
  close();
}

}  // namespace sluice

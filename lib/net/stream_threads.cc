#include "lib/net/stream_threads.h"

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "lib/net/asio_executor.h"
#include "lib/net/asio_stream.h"

namespace sluice {
namespace {

// State that the two ends of a stream share.
struct Shared {
  StreamSocketEvents* events = nullptr;  // null: the owner dropped the stream. For the link's thread only
  std::atomic<size_t> unsent_bytes = 0;  // written by the near end, and not accepted by the kernel
  std::atomic<int> error_number = 0;     // of the stream that has ended
  std::atomic<bool> asked = false;       // the near end has seen unsent bytes, and waits for OnDrained

  std::mutex mutex;
  std::optional<TcpSocket> tcp;  // guarded by mutex; state at the last read
};

// The end on the stream's own thread: hands events to the link's thread.
class FarEnd final : public StreamSocketEvents {
 public:
  FarEnd(AsioExecutor& link, std::shared_ptr<Shared> shared) : link_(link), shared_(std::move(shared)) {}

  void Open(AsioExecutor& executor, const WorkerAddress& address, const Executor::ConnectOptions& options) {
    socket_ = ConnectStream(executor, address, options, *this);
  }
  void Write(std::string bytes) {
    if (socket_ == nullptr) return;
    held_bytes_ += bytes.size();
    socket_->Write(std::move(bytes));
    if (socket_->unsent_bytes() > 0) return;
    shared_->unsent_bytes -= std::exchange(held_bytes_, 0);
    if (shared_->asked.exchange(false)) TellDrained();
  }
  void StartTls() {
    if (socket_ != nullptr) socket_->StartTls();
  }
  void SetReading(bool reading) {
    if (socket_ != nullptr) socket_->SetReading(reading);
  }
  void SetReceiveWindow(int bytes) {
    if (socket_ != nullptr) socket_->SetReceiveWindow(bytes);
  }
  void EndWrites() {
    if (socket_ != nullptr) socket_->EndWrites();
  }
  void Reset() {
    if (socket_ != nullptr) socket_->Reset();
  }
  void CheckPeer(const std::function<void(const absl::Status& why)>& on_revoked) {
    if (socket_ == nullptr) return;
    socket_->CheckPeer([this, on_revoked](const absl::Status& why) {
      Tell([on_revoked, why](StreamSocketEvents&) { on_revoked(why); });
    });
  }
  void Close() { socket_.reset(); }
  void LookAtTcp() {
    std::optional<TcpSocket> tcp = socket_ != nullptr ? socket_->Tcp() : std::nullopt;
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->tcp = std::move(tcp);
  }

  void OnTcpConnected() override {
    Tell([](StreamSocketEvents& events) { events.OnTcpConnected(); });
  }
  void OnConnected() override {
    LookAtTcp();
    Tell([](StreamSocketEvents& events) { events.OnConnected(); });
  }
  void OnBytes(absl::string_view bytes) override {
    Tell([bytes = std::string(bytes)](StreamSocketEvents& events) { events.OnBytes(bytes); });
  }
  void OnDrained() override {
    shared_->unsent_bytes -= std::exchange(held_bytes_, 0);
    shared_->asked = false;
    TellDrained();
  }
  void OnEnded() override {
    Tell([](StreamSocketEvents& events) { events.OnEnded(); });
  }
  void OnDisconnected(absl::Status why) override {
    LookAtTcp();
    shared_->error_number = socket_->error_number();
    Tell([why = std::move(why)](StreamSocketEvents& events) { events.OnDisconnected(why); });
  }

 private:
  void TellDrained() {
    Tell([](StreamSocketEvents& events) { events.OnDrained(); });
  }
  template <class Event>
  void Tell(Event event) {
    link_.Post([shared = shared_, event = std::move(event)] {
      if (shared->events != nullptr) event(*shared->events);
    });
  }

  AsioExecutor& link_;
  const std::shared_ptr<Shared> shared_;
  std::unique_ptr<StreamSocket> socket_;  // null: not open yet, or closed
  size_t held_bytes_ = 0;                 // the part of the shared unsent bytes that has reached this end
};

// The end that the owner uses, on the link's thread.
class NearEnd final : public StreamSocket {
 public:
  NearEnd(AsioExecutor& link, AsioExecutor& thread, StreamSocketEvents& events)
      : thread_(thread), shared_(std::make_shared<Shared>()), far_(std::make_shared<FarEnd>(link, shared_)) {
    shared_->events = &events;
  }
  ~NearEnd() override {
    shared_->events = nullptr;
    thread_.Post([far = std::move(far_)] { far->Close(); });
  }

  void Open(const WorkerAddress& address, const Executor::ConnectOptions& options) {
    thread_.Post([far = far_, &thread = thread_, address, options] { far->Open(thread, address, options); });
  }
  void Write(std::string bytes) override {
    shared_->unsent_bytes += bytes.size();
    thread_.Post([far = far_, bytes = std::move(bytes)]() mutable { far->Write(std::move(bytes)); });
  }
  void StartTls() override {
    thread_.Post([far = far_] { far->StartTls(); });
  }
  // Bytes on their way to the other thread count as unsent.
  size_t unsent_bytes() const override {
    if (shared_->unsent_bytes == 0) return 0;
    shared_->asked = true;  // set before the read below, because the far end accesses the two in the opposite order
    return shared_->unsent_bytes;
  }
  void EndWrites() override {
    thread_.Post([far = far_] { far->EndWrites(); });
  }
  void Reset() override {
    shared_->events = nullptr;
    thread_.Post([far = far_] { far->Reset(); });
  }
  void SetReading(bool reading) override {
    thread_.Post([far = far_, reading] { far->SetReading(reading); });
  }
  void SetReceiveWindow(int bytes) override {
    thread_.Post([far = far_, bytes] { far->SetReceiveWindow(bytes); });
  }
  void CheckPeer(std::function<void(const absl::Status& why)> on_revoked) override {
    thread_.Post([far = far_, on_revoked = std::move(on_revoked)] { far->CheckPeer(on_revoked); });
  }
  int error_number() const override { return shared_->error_number; }
  // Returns the last state of the socket, and starts a new read for the next call. Waiting for the other thread here
  // would make the link as slow as that thread.
  std::optional<TcpSocket> Tcp() const override {
    thread_.Post([far = far_] { far->LookAtTcp(); });
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    return shared_->tcp;
  }

 private:
  AsioExecutor& thread_;
  const std::shared_ptr<Shared> shared_;
  std::shared_ptr<FarEnd> far_;
};

}  // namespace

StreamThreads::StreamThreads(AsioExecutor& link, size_t threads) : link_(link) {
  for (size_t i = 0; i < threads; ++i) threads_.push_back(std::make_unique<AsioExecutor>());
}

StreamThreads::~StreamThreads() {
  Stop();
}

std::unique_ptr<StreamSocket> StreamThreads::Connect(const WorkerAddress& address,
                                                     const Executor::ConnectOptions& options,
                                                     StreamSocketEvents& events) {
  auto near = std::make_unique<NearEnd>(link_, *threads_[next_++ % threads_.size()], events);
  near->Open(address, options);
  return near;
}

// Runs every posted Close before the threads end, so that the peer receives an orderly end.
void StreamThreads::Stop() {
  if (std::exchange(stopped_, true)) return;
  for (const auto& thread : threads_) thread->Await([] {});
  for (const auto& thread : threads_) thread->Stop();
}

}  // namespace sluice

#include "tests/fan_out/scripted_server.h"

#include <utility>

#include <grpcpp/server_builder.h>

#include "absl/strings/str_cat.h"
#include "tests/eventually.h"

namespace sluice::testing {
namespace {

std::string ToString(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return "";
  std::string text;
  for (const grpc::Slice& slice : slices) text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return text;
}

grpc::ByteBuffer ToBytes(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

// Owns itself from construction to OnDone. One step at a time: a write, a hold, the end.
class ScriptedServer::Call final : public grpc::ServerGenericBidiReactor {
 public:
  Call(ScriptedServer& server, grpc::GenericCallbackServerContext& context) : server_(server), context_(context) {
    {
      absl::MutexLock lock(&server_.mutex_);
      ++server_.counts_.open;
    }
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);  // cancelled before its request came
    Seen seen{.method = context_.method(),
              .authority = context_.host(),
              .request = ToString(request_),
              .metadata = {},
              .connection = context_.peer(),
              .deadline = context_.deadline()};
    for (const auto& [key, value] : context_.client_metadata()) {
      seen.metadata.emplace(std::string(key.data(), key.size()), std::string(value.data(), value.size()));
    }
    script_ = server_.Begin(std::move(seen));
    for (const auto& [key, value] : script_.headers) context_.AddInitialMetadata(key, value);
    for (const auto& [key, value] : script_.trailers) context_.AddTrailingMetadata(key, value);
    if (script_.early_headers) return StartSendInitialMetadata();
    Step();
  }
  void OnSendInitialMetadataDone(bool) override { Step(); }
  void OnWriteDone(bool) override { Step(); }

  void OnCancel() override {
    bool held = false;
    {
      absl::MutexLock lock(&server_.mutex_);
      ++server_.counts_.cancelled;
      cancelled_ = true;
      held = StopHolding();
    }
    if (held) Finish(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    {
      absl::MutexLock lock(&server_.mutex_);
      --server_.counts_.open;
    }
    delete this;
  }

  bool StopHolding() ABSL_EXCLUSIVE_LOCKS_REQUIRED(server_.mutex_) {
    if (server_.holding_.erase(this) == 0) return false;
    --server_.counts_.holding;
    return true;
  }

  void Step() {
    {
      absl::MutexLock lock(&server_.mutex_);
      if (!cancelled_ && !server_.released_ && script_.hold_before == next_) {
        server_.holding_.insert(this);
        ++server_.counts_.holding;
        return;
      }
    }
    if (next_ == script_.messages.size()) return Finish(script_.status);
    message_ = ToBytes(script_.messages[next_++]);
    const bool last = next_ == script_.messages.size() && script_.hold_before != next_;
    if (!last) return StartWrite(&message_);
    StartWriteAndFinish(&message_, grpc::WriteOptions(), script_.status);
  }

 private:
  ScriptedServer& server_;
  grpc::GenericCallbackServerContext& context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer message_;
  Script script_;
  size_t next_ = 0;
  bool cancelled_ ABSL_GUARDED_BY(server_.mutex_) = false;
};

class ScriptedServer::Service final : public grpc::CallbackGenericService {
 public:
  explicit Service(ScriptedServer& server) : server_(server) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    return new Call(server_, *context);
  }

 private:
  ScriptedServer& server_;
};

ScriptedServer::ScriptedServer(Play play, const std::shared_ptr<grpc::ServerCredentials>& credentials)
    : play_(std::move(play)), service_(std::make_unique<Service>(*this)) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", credentials, &port);
  builder.RegisterCallbackGenericService(service_.get());
  server_ = builder.BuildAndStart();
  address_ = absl::StrCat("127.0.0.1:", port);
}

ScriptedServer::~ScriptedServer() {
  server_->Shutdown(std::chrono::system_clock::now());
}

void ScriptedServer::SetPlay(Play play) {
  absl::MutexLock lock(&mutex_);
  play_ = std::move(play);
  released_ = false;
}

Script ScriptedServer::Begin(Seen seen) {
  Play play;
  {
    absl::MutexLock lock(&mutex_);
    ++counts_.requests;
    seen_.push_back(seen);
    play = play_;
  }
  return play(seen);
}

void ScriptedServer::Release() {
  std::set<Call*> held;
  {
    absl::MutexLock lock(&mutex_);
    released_ = true;
    counts_.holding = 0;
    held.swap(holding_);
  }
  for (Call* call : held) call->Step();
}

ScriptedServer::Counts ScriptedServer::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

std::vector<Seen> ScriptedServer::seen() const {
  absl::MutexLock lock(&mutex_);
  return seen_;
}

size_t ScriptedServer::connections() const {
  absl::MutexLock lock(&mutex_);
  std::set<std::string> connections;
  for (const Seen& seen : seen_) connections.insert(seen.connection);
  return connections.size();
}

bool ScriptedServer::Await(const std::function<bool(const Counts&)>& condition) const {
  const auto met = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return condition(counts_); };
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&met), kPatience);
}

}  // namespace sluice::testing

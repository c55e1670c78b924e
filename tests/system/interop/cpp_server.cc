// Serves interop.proto with gRPC's two C++ APIs. Usage: interop_cpp_server sync|callback. Writes "port N" to stderr.

#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "interop.grpc.pb.h"

namespace sluice::interop::v1 {
namespace {

using google::protobuf::BytesValue;
using google::protobuf::Empty;
using google::protobuf::Struct;

struct Order {
  explicit Order(const Struct& request)
      : bytes(static_cast<size_t>(Number(request, "bytes", 0))),
        messages(static_cast<int>(Number(request, "messages", 1))),
        hold(Number(request, "hold", 0) != 0),
        early(Number(request, "early", 0) != 0),
        code(static_cast<grpc::StatusCode>(Number(request, "code", 0))) {
    if (const auto field = request.fields().find("text"); field != request.fields().end()) {
      text = field->second.string_value();
    }
  }

  static double Number(const Struct& request, const std::string& name, double otherwise) {
    const auto field = request.fields().find(name);
    return field == request.fields().end() ? otherwise : field->second.number_value();
  }

  BytesValue Message() const {
    BytesValue message;
    message.set_value(std::string(bytes, 'x'));
    return message;
  }

  grpc::Status Status() const {
    return code == grpc::StatusCode::OK ? grpc::Status::OK : grpc::Status(code, text, "details of " + text);
  }

  size_t bytes;
  int messages;
  bool hold;
  bool early;
  grpc::StatusCode code;
  std::string text;
};

// A gate that stays open once it has been opened. One for each server. Thread-safe.
class Gate {
 public:
  void Await() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&open_));
  }
  void Open() {
    std::vector<std::function<void()>> waiting;
    {
      absl::MutexLock lock(&mutex_);
      open_ = true;
      waiting.swap(waiting_);
    }
    for (const auto& go_on : waiting) go_on();
  }
  void WhenOpen(std::function<void()> go_on) {
    {
      absl::MutexLock lock(&mutex_);
      if (!open_) return waiting_.push_back(std::move(go_on));
    }
    go_on();
  }

 private:
  absl::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
};

class SyncService final : public Interop::Service {
  grpc::Status Get(grpc::ServerContext*, const Struct* request, BytesValue* response) override {
    const Order order(*request);
    // The sync API cannot send the headers of a unary response early.
    if (order.hold) gate_.Await();
    *response = order.Message();
    return order.Status();
  }
  grpc::Status List(grpc::ServerContext*, const Struct* request, grpc::ServerWriter<BytesValue>* writer) override {
    const Order order(*request);
    if (order.early) writer->SendInitialMetadata();
    if (order.hold) gate_.Await();
    for (int i = 0; i < order.messages; ++i) {
      if (!writer->Write(order.Message())) break;
    }
    return order.Status();
  }
  grpc::Status Release(grpc::ServerContext*, const Empty*, Empty*) override {
    gate_.Open();
    return grpc::Status::OK;
  }

  Gate gate_;
};

class UnaryReactor final : public grpc::ServerUnaryReactor {
 public:
  UnaryReactor(Gate& gate, Order order, BytesValue& response) : order_(std::move(order)) {
    if (order_.early) StartSendInitialMetadata();
    auto answer = [this, &response] {
      response = order_.Message();
      Finish(order_.Status());
    };
    order_.hold ? gate.WhenOpen(answer) : answer();
  }
  void OnDone() override { delete this; }

 private:
  const Order order_;
};

class ListReactor final : public grpc::ServerWriteReactor<BytesValue> {
 public:
  ListReactor(Gate& gate, Order order) : order_(std::move(order)), message_(order_.Message()) {
    if (order_.early) StartSendInitialMetadata();
    auto answer = [this] { Next(true); };
    order_.hold ? gate.WhenOpen(answer) : answer();
  }
  void OnWriteDone(bool ok) override { Next(ok); }
  void OnDone() override { delete this; }

 private:
  void Next(bool ok) {
    if (!ok || sent_++ == order_.messages) return Finish(order_.Status());
    StartWrite(&message_);
  }

  const Order order_;
  const BytesValue message_;
  int sent_ = 0;
};

class CallbackService final : public Interop::CallbackService {
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext*, const Struct* request, BytesValue* response) override {
    return new UnaryReactor(gate_, Order(*request), *response);
  }
  grpc::ServerWriteReactor<BytesValue>* List(grpc::CallbackServerContext*, const Struct* request) override {
    return new ListReactor(gate_, Order(*request));
  }
  grpc::ServerUnaryReactor* Release(grpc::CallbackServerContext* context, const Empty*, Empty*) override {
    gate_.Open();
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  Gate gate_;
};

int Serve(grpc::Service& service) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) return 1;
  std::cerr << "port " + std::to_string(port) + "\n";
  server->Wait();
  return 0;
}

int Main(const std::string& api) {
  if (api == "callback") {
    CallbackService service;
    return Serve(service);
  }
  SyncService service;
  return Serve(service);
}

}  // namespace
}  // namespace sluice::interop::v1

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  return sluice::interop::v1::Main(argv[1]);
}

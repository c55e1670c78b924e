// A gRPC service written without Sluice, with the callback API. Serves Answers until SIGTERM.
//
//     answer_server [--tls CERTIFICATE_FILE KEY_FILE] READY_FILE HOST:PORT...
//
// Writes its addresses to READY_FILE once it serves. Port 0 picks a free port. The TLS files are PEM.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>  // Boost 1.74 needs it and does not include it in C++20
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <grpcpp/grpcpp.h>

#include "answers.grpc.pb.h"

namespace sluice::testbed {
namespace {

// Delays calls without a thread per call. One for each server. Thread-safe.
class Thinker {
 public:
  // Draws are the same in every run. Servers with different seeds draw differently.
  Thinker(boost::asio::io_context& context, const std::string& seed) : context_(context) {
    std::seed_seq sequence(seed.begin(), seed.end());
    random_.seed(sequence);
  }

  // Whether this response belongs to the slow tail.
  bool DrawTail(double share) {
    const std::lock_guard lock(mutex_);
    return std::bernoulli_distribution(std::clamp(share, 0.0, 1.0))(random_);
  }

  void After(uint32_t microseconds, std::function<void()> then) {
    if (microseconds == 0) return then();
    auto timer = std::make_shared<boost::asio::steady_timer>(context_, std::chrono::microseconds(microseconds));
    timer->async_wait([timer, then = std::move(then)](const boost::system::error_code&) { then(); });
  }

 private:
  boost::asio::io_context& context_;
  std::mutex mutex_;
  std::mt19937 random_;
};

// Waits for the think time of the request, then fills in the response and calls `then`.
void Think(Thinker& thinker, const v1::AnswerRequest& request, v1::AnswerResponse& response,
           std::function<void()> then) {
  response.set_tail(request.tail_share() > 0 && thinker.DrawTail(request.tail_share()));
  thinker.After(response.tail() ? request.tail_think_us() : request.think_us(),
                [&request, &response, then = std::move(then)] {
                  response.mutable_payload()->assign(request.response_bytes(), 'x');
                  then();
                });
}

// Owns itself from construction to OnDone. It notices a lost client only when the think time ends.
class StreamCall final : public grpc::ServerWriteReactor<v1::AnswerResponse> {
 public:
  StreamCall(Thinker& thinker, const v1::AnswerRequest& request) : left_(std::max(1u, request.messages())) {
    Think(thinker, request, response_, [this] { StartWrite(&response_); });
  }

  void OnWriteDone(bool ok) override {
    if (!ok || --left_ == 0) return Finish(grpc::Status::OK);
    StartWrite(&response_);
  }

  void OnDone() override { delete this; }

 private:
  v1::AnswerResponse response_;
  uint32_t left_;
};

class AnswerService final : public v1::Answers::CallbackService {
 public:
  AnswerService(boost::asio::io_context& context, const std::string& seed) : thinker_(context, seed) {}

  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const v1::AnswerRequest* request,
                                   v1::AnswerResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    Think(thinker_, *request, *response, [reactor, request] {
      const uint32_t details_bytes = request->error_details_bytes();
      if (details_bytes == 0) return reactor->Finish(grpc::Status::OK);
      reactor->Finish(
          grpc::Status(grpc::StatusCode::INTERNAL, "the request asks for an error", std::string(details_bytes, 'x')));
    });
    return reactor;
  }

  grpc::ServerWriteReactor<v1::AnswerResponse>* AnswerStream(grpc::CallbackServerContext*,
                                                             const v1::AnswerRequest* request) override {
    return new StreamCall(thinker_, *request);
  }

 private:
  Thinker thinker_;
};

// Writes the file under another name first, because its reader reads it as soon as it exists.
void WriteReadyFile(const std::string& path, const std::vector<std::string>& addresses) {
  const std::string unfinished = path + ".new";
  std::ofstream file(unfinished);
  for (const std::string& address : addresses) file << address << '\n';
  file.close();
  std::filesystem::rename(unfinished, path);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const std::string& certificate, const std::string& key) {
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({ReadFile(key), ReadFile(certificate)});
  return grpc::SslServerCredentials(options);
}

std::unique_ptr<grpc::Server> StartServer(grpc::Service& service,
                                          const std::shared_ptr<grpc::ServerCredentials>& credentials,
                                          std::vector<std::string>& addresses) {
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  std::vector<int> ports(addresses.size());
  for (size_t i = 0; i < addresses.size(); ++i) {
    builder.AddListeningPort(addresses[i], credentials, &ports[i]);
  }
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || std::find(ports.begin(), ports.end(), 0) != ports.end()) return nullptr;
  for (size_t i = 0; i < addresses.size(); ++i) {
    addresses[i] = addresses[i].substr(0, addresses[i].rfind(':') + 1) + std::to_string(ports[i]);
  }
  return server;
}

int Serve(const std::shared_ptr<grpc::ServerCredentials>& credentials, const std::string& ready_file,
          std::vector<std::string> addresses) {
  // Block the signals before other threads exist, so that sigwait receives them.
  sigset_t termination;
  sigemptyset(&termination);
  sigaddset(&termination, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &termination, nullptr);

  boost::asio::io_context context;
  AnswerService service(context, addresses.front());
  const std::unique_ptr<grpc::Server> server = StartServer(service, credentials, addresses);
  if (server == nullptr) {
    std::cerr << "answer_server: cannot serve on every address\n";
    return 1;
  }
  auto work = boost::asio::make_work_guard(context);
  const std::jthread timers([&] { context.run(); });
  WriteReadyFile(ready_file, addresses);
  int signal = 0;
  sigwait(&termination, &signal);
  server->Shutdown(std::chrono::system_clock::now());  // returns when the think time of the last call has ended
  work.reset();
  return 0;
}

}  // namespace
}  // namespace sluice::testbed

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool tls = !arguments.empty() && arguments.front() == "--tls";
  const size_t files = tls ? 3 : 0;
  if (arguments.size() < files + 2) {
    std::cerr << "usage: answer_server [--tls CERTIFICATE_FILE KEY_FILE] READY_FILE HOST:PORT...\n";
    return 2;
  }
  return sluice::testbed::Serve(
      tls ? sluice::testbed::TlsCredentials(arguments[1], arguments[2]) : grpc::InsecureServerCredentials(),
      arguments[files], {arguments.begin() + files + 1, arguments.end()});
}

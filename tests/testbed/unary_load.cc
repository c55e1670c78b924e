// Makes unary calls to one server of answers.proto with gRPC's own client, at a fixed rate or a fixed number at a time,
// and reports the time of each call. A part of the test network, not installed.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <grpcpp/grpcpp.h>

#include "answers.grpc.pb.h"
#include "lib/cli/program.h"
#include "tools/json_report.h"
#include "tools/percentile.h"

namespace sluice::testbed {
namespace {

using Clock = std::chrono::steady_clock;

struct Flags {
  std::string target;
  std::string authority;
  int64_t calls = 4000;
  double calls_per_second = 0;
  int64_t at_a_time = 1;
  uint32_t response_bytes = 1024;
};

// The calls in flight, and the outcomes of the others. One for each run. Thread-safe.
class Calls {
 public:
  // Waits until fewer than `at_a_time` calls are in flight.
  void Begin(int64_t at_a_time) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return out_ < at_a_time; });
    ++out_;
  }
  void End(Clock::duration took, const grpc::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    --out_;
    took_us_.push_back(std::chrono::duration<double, std::micro>(took).count());
    if (!status.ok() && errors_++ == 0) error_ = status.error_message();
    changed_.notify_all();
  }
  void AwaitAll() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return out_ == 0; });
  }

  // Call these only after AwaitAll.
  const std::vector<double>& took_us() const { return took_us_; }
  int64_t errors() const { return errors_; }
  const std::string& error() const { return error_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t out_ = 0;
  std::vector<double> took_us_;
  int64_t errors_ = 0;
  std::string error_;
};

// The data of one call, owned by its callback.
struct Call {
  grpc::ClientContext context;
  v1::AnswerResponse response;
  Clock::time_point began;
};

absl::Status Run(const Flags& flags) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  if (!flags.authority.empty()) arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, flags.authority);
  const auto stub =
      v1::Answers::NewStub(grpc::CreateCustomChannel(flags.target, grpc::InsecureChannelCredentials(), arguments));
  v1::AnswerRequest request;
  request.set_response_bytes(flags.response_bytes);
  Calls calls;
  const auto begin = Clock::now();
  for (int64_t i = 0; i < flags.calls; ++i) {
    if (flags.calls_per_second > 0) {
      // In an open loop a slow call must not delay the calls after it.
      const std::chrono::duration<double> due(static_cast<double>(i) / flags.calls_per_second);
      std::this_thread::sleep_until(begin + std::chrono::duration_cast<Clock::duration>(due));
      calls.Begin(flags.calls);
    } else {
      calls.Begin(flags.at_a_time);
    }
    auto call = std::make_shared<Call>();
    call->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    call->began = Clock::now();
    stub->async()->Answer(&call->context, &request, &call->response, [call, &calls](const grpc::Status& status) {
      calls.End(Clock::now() - call->began, status);
    });
  }
  calls.AwaitAll();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const double bytes = static_cast<double>(flags.calls - calls.errors()) * flags.response_bytes;
  return WriteJsonReport("-", {{"calls", static_cast<double>(flags.calls)},
                               {"errors", static_cast<double>(calls.errors())},
                               {"error_sample", calls.error()},
                               {"p50_us", Percentile(calls.took_us(), 0.5)},
                               {"p99_us", Percentile(calls.took_us(), 0.99)},
                               {"goodput_bps", 8 * bytes / seconds}});
}

}  // namespace
}  // namespace sluice::testbed

int main(int argc, char** argv) {
  sluice::testbed::Flags flags;
  return sluice::RunProgram(
      argc, argv,
      {.name = "unary_load",
       .description = "Makes unary calls to one server of answers.proto, and tells how long they took.",
       .add_flags =
           [&](CLI::App& app) {
             app.add_option("--target", flags.target, "Where to connect to, as gRPC has it")->required();
             app.add_option("--authority", flags.authority, "The :authority of the calls. Default: the target");
             app.add_option("--calls", flags.calls, "How many calls to make. Default 4000")
                 ->check(CLI::Range(1, 1 << 24));
             app.add_option("--calls_per_second", flags.calls_per_second,
                            "Begin calls at this rate. Default: as soon as --at_a_time lets them");
             app.add_option("--at_a_time", flags.at_a_time, "Calls at a time, without a rate. Default 1")
                 ->check(CLI::Range(1, 1 << 16));
             app.add_option("--response_bytes", flags.response_bytes, "Bytes of an answer. Default 1024");
           },
       .configure = [] { return absl::OkStatus(); },
       .run = [&] { return sluice::testbed::Run(flags); }});
}

// search-worker: serves shards of an index. An ordinary gRPC server, as anybody would write it; one line announces how
// large its answers are, which a query's aggregator cannot know beforehand.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include "sluice/worker.h"

#include "absl/strings/str_cat.h"
#include "examples/search/search_service.h"
#include "lib/cli/logging.h"
#include "lib/cli/program.h"
#include "lib/cli/ready_file.h"
#include "lib/cli/termination_signal.h"
#include "lib/telemetry/io_thread.h"

namespace sluice::examples::search {
namespace {

constexpr auto kDrainTimeout = std::chrono::seconds(10);

class Worker {
 public:
  void AddFlags(CLI::App& app) {
    app.add_option("--listen", listen_, "host:port to serve on; port 0 is a free one")->required();
    app.add_option("--index", index_, "Folder of an index that search-index made")->required();
    app.add_option("--shards", shards_, "Serve these shards only: 0,4,8. Default: all")->delimiter(',');
    app.add_option("--ready_file", ready_file_, "Write the bound address here once serving");
  }

  absl::Status Run() const {
    IoThread io_thread;
    TerminationSignal termination(io_thread.context());
    const absl::StatusOr<std::unique_ptr<SearchService>> service = SearchService::Open(index_, shards_);
    if (!service.ok()) return service.status();
    const absl::StatusOr<std::unique_ptr<grpc::Server>> server = Start(**service);
    if (!server.ok()) return server.status();
    termination.Wait();
    (*server)->Shutdown(std::chrono::system_clock::now() + kDrainTimeout);
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::unique_ptr<grpc::Server>> Start(SearchService& service) const {
    grpc::EnableDefaultHealthCheckService(true);
    int port = 0;
    grpc::ServerBuilder builder;
    builder.RegisterService(&service);
    AnnounceResponseSizes(builder);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // an error where another server has the port
    builder.AddListeningPort(listen_, grpc::InsecureServerCredentials(), &port);
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (!server || port == 0) return absl::UnavailableError(absl::StrCat("listen: cannot serve on ", listen_));
    const std::string address = absl::StrCat(listen_.substr(0, listen_.rfind(':') + 1), port);
    Log(LogLevel::kInfo, "serving", {{"listen", address}, {"index", index_}, {"shards", service.shards()}});
    if (absl::Status written = WriteReadyFile(ready_file_, {address}); !written.ok()) return written;
    return server;
  }

  std::string listen_;
  std::string index_;
  std::vector<uint32_t> shards_;
  std::string ready_file_;
};

}  // namespace
}  // namespace sluice::examples::search

int main(int argc, char** argv) {
  sluice::examples::search::Worker worker;
  return sluice::RunProgram(argc, argv,
                            {.name = "search-worker",
                             .description = "Serves shards of a full-text index over gRPC.",
                             .add_flags = [&](CLI::App& app) { worker.AddFlags(app); },
                             .run = [&] { return worker.Run(); }});
}

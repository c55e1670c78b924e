// search-worker: serves shards of an index.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "examples/search/search_service.h"
#include "examples/search/shard_server.h"
#include "lib/cli/logging.h"
#include "lib/cli/program.h"
#include "lib/cli/ready_file.h"
#include "lib/cli/termination_signal.h"
#include "lib/cli/tls_flags.h"
#include "lib/net/io_thread.h"

namespace sluice::examples::search {
namespace {

class Worker {
 public:
  void AddFlags(CLI::App& app) {
    app.add_option("--listen", listen_, "Address to serve on, host:port; port 0 takes a free one")->required();
    app.add_option("--index", index_, "Folder of an index that search-index made")->required();
    app.add_option("--shards", shards_, "Serve these shards only: 0,4,8. Default: all")->delimiter(',');
    app.add_option("--ready_file", ready_file_, "File to write the bound address to when the server serves");
    AddTlsFlags(app, tls_config_, TlsRole::kServer);
  }

  absl::Status Configure() {
    absl::StatusOr<TlsSettings> tls = ParseTlsConfig(tls_config_, TlsRole::kServer);
    if (!tls.ok()) return tls.status();
    tls_ = *std::move(tls);
    return CheckTlsFiles(tls_);
  }

  absl::Status Run() const {
    IoThread io_thread;
    TerminationSignal termination(io_thread.context());
    const absl::StatusOr<std::unique_ptr<SearchService>> service = SearchService::Open(index_, shards_);
    if (!service.ok()) return service.status();
    absl::StatusOr<ShardServer> server = ShardServer::Start(**service, listen_, tls_.server);
    if (!server.ok()) return server.status();
    Log(LogLevel::kInfo, "serving",
        {{"listen", server->address()}, {"index", index_}, {"shards", (*service)->shards()}});
    WarnWithoutTls(tls_.server, {server->address()});
    if (absl::Status written = WriteReadyFile(ready_file_, {server->address()}); !written.ok()) return written;
    termination.Wait();
    server->Drain();
    return absl::OkStatus();
  }

 private:
  std::string listen_;
  std::string index_;
  std::vector<uint32_t> shards_;
  std::string ready_file_;
  sluice::v1::TlsConfig tls_config_;
  TlsSettings tls_;
};

}  // namespace
}  // namespace sluice::examples::search

int main(int argc, char** argv) {
  sluice::examples::search::Worker worker;
  return sluice::RunProgram(argc, argv,
                            {.name = "search-worker",
                             .description = "Serves shards of a full-text index over gRPC.",
                             .add_flags = [&](CLI::App& app) { worker.AddFlags(app); },
                             .configure = [&] { return worker.Configure(); },
                             .run = [&] { return worker.Run(); }});
}

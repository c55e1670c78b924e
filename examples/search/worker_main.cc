// search-worker: serves shards of an index.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "program.h"
#include "search_service.h"
#include "shard_server.h"

namespace sluice::examples::search {
namespace {

absl::Status Serve(const std::string& index, const std::vector<uint32_t>& shards, const ShardServerOptions& server) {
  const sigset_t termination = BlockTerminationSignals();
  const absl::StatusOr<std::unique_ptr<SearchService>> service = SearchService::Open(index, shards);
  if (!service.ok()) return service.status();
  return ServeShards(**service, server, termination, absl::StrCat((*service)->shards(), " shards of ", index));
}

}  // namespace
}  // namespace sluice::examples::search

int main(int argc, char** argv) {
  CLI::App app("Serves shards of a full-text index over gRPC.", "search-worker");
  std::string index;
  std::vector<uint32_t> shards;
  sluice::examples::search::ShardServerOptions server;
  sluice::examples::search::AddShardServerFlags(app, server);
  app.add_option("--index", index, "Folder of an index that search-index made")->required();
  app.add_option("--shards", shards, "Serve these shards only: 0,4,8. Default: all")->delimiter(',');
  return sluice::examples::search::RunProgram(app, argc, argv,
                                              [&] { return sluice::examples::search::Serve(index, shards, server); });
}

// The client of gRPC's interop suite, built on sluice::FanOut, with the flags of the suite's own clients. Exits with 0
// if the case has passed.

#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "lib/cli/program.h"
#include "tests/system/interop/grpc_interop_cases.h"

namespace sluice::testing {
namespace {

struct Flags {
  std::string server_host = "127.0.0.1";
  std::vector<int> server_ports;
  bool use_tls = false;
  TlsOptions tls;
  std::string test_case;
};

void AddFlags(CLI::App& app, Flags& flags, InteropServer& server) {
  app.add_option("--server_host", flags.server_host, "host of the server")->capture_default_str();
  app.add_option("--server_port", flags.server_ports, "its port; several: the case asks all of them in one fan-out")
      ->delimiter(',')
      ->required();
  app.add_flag("--use_tls", flags.use_tls, "TLS; plaintext otherwise");
  app.add_option("--ca_file", flags.tls.ca_file, "who signs its certificate, PEM; default: those of the system");
  app.add_option("--server_host_override", flags.tls.server_name, "name in its certificate; default: server_host");
  app.add_option("--test_case", flags.test_case, "name of the case")->required();
  app.add_option("--soak_iterations", server.soak_iterations, "calls of rpc_soak and channel_soak")
      ->capture_default_str();
  app.add_option("--concurrent_calls", server.concurrent_calls, "calls of concurrent_large_unary")
      ->capture_default_str();
}

int Main(int argc, const char* const* argv) {
  Flags flags;
  InteropServer server;
  return RunProgram(argc, argv,
                    {.name = "grpc_interop_client",
                     .description = "Plays a case of gRPC's interop suite against one of its servers.",
                     .add_flags = [&](CLI::App& app) { AddFlags(app, flags, server); },
                     .configure =
                         [&] {
                           for (int port : flags.server_ports) {
                             server.addresses.push_back(absl::StrCat(flags.server_host, ":", port));
                           }
                           if (flags.use_tls) server.tls = flags.tls;
                           return absl::OkStatus();
                         },
                     .run =
                         [&] {
                           absl::Status status = PlayInteropCase(flags.test_case, server);
                           if (status.ok()) std::cout << flags.test_case << ": passed" << std::endl;
                           return status;
                         }});
}

}  // namespace
}  // namespace sluice::testing

int main(int argc, char** argv) {
  return sluice::testing::Main(argc, argv);
}

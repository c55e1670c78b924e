#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/eventually.h"
#include "tests/system/apps/run_program.h"
#include "tests/system/interop/counting_relay.h"
#include "tests/unit/storage/stripe/striped_folder.h"
#include "tests/unit/tls/test_certificates.h"

// Runs our client of gRPC's interop suite against servers of the suite: each case over one connection, and over four in
// one fan-out. CMakeLists.txt makes one ctest case per server, whose cases share its process, because a Java server
// takes a second to start. See install-servers.
namespace sluice::testing {
namespace {

constexpr size_t kConnections = 4;

struct ServerKind {
  std::string name;
  bool tls = false;
};

struct Case {
  ServerKind server;
  std::string name;

  friend std::ostream& operator<<(std::ostream& out, const Case& played) { return out << played.name; }
};

// Bytes of uncompressed payloads on each connection. Payloads are zeros, so the bytes on the connection show whether a
// message was compressed.
struct Uncompressed {
  int64_t client_bytes = 0;
  int64_t server_bytes = 0;
};
const std::map<std::string, Uncompressed> kUncompressed = {
    {"client_compressed_unary", {2 * 271'828, 2 * 314'159}},
    {"client_compressed_unary_noprobe", {271'828, 2 * 314'159}},
    {"server_compressed_unary", {2 * 271'828, 314'159}},
    {"server_compressed_streaming", {0, 92'653}},
};

// The suite's servers use the suite's certificates. Our server uses certificates of the test.
struct Trust {
  std::string ca_file;
  std::string server_name;
};

int FreePort() {
  using boost::asio::ip::tcp;
  boost::asio::io_context io;
  return tcp::acceptor(io, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0)).local_endpoint().port();
}

// A server's process. Its output goes to a file, so that it never blocks on a full pipe. One for each server. Not
// thread-safe.
class RunningServer {
 public:
  explicit RunningServer(ServerKind kind) : kind_(std::move(kind)) {}

  // Returns false if the server is not installed.
  bool Installed() const { return kind_.name == "cpp" || std::filesystem::exists(Folder() + "version"); }

  void Start() {
    constexpr int kTries = 5;  // another process may take the port
    for (int i = 0; i < kTries && !up(); ++i) {
      port_ = FreePort();
      std::vector<std::string> command = {"/bin/sh", "-c", "exec \"$@\" >\"$0\" 2>&1", LogFile()};
      for (std::string& word : Command()) command.push_back(std::move(word));
      std::filesystem::remove(LogFile());
      program_ = std::make_unique<BackgroundProgram>(command);
      if (!Eventually([this] { return up() || absl::StrContains(Log(), "n use"); })) return;
    }
  }
  bool up() const { return absl::StrContains(Log(), UpText()); }

  int port() const { return port_; }
  std::string Log() const {
    std::ifstream file(LogFile());
    return {std::istreambuf_iterator<char>(file), {}};
  }

  Trust trust() {
    if (kind_.name == "cpp") return {certificates_.ca_file(), "interop.example.com"};
    return {Folder() + "ca.pem", "foo.test.google.fr"};
  }

 private:
  std::string LogFile() const { return folder_.path() / "log"; }
  std::string Folder() const { return absl::StrCat(INTEROP_SERVERS "/", kind_.name, "/"); }

  std::vector<std::string> Command() {
    const std::string port = absl::StrCat(port_);
    const std::string tls = kind_.tls ? "true" : "false";
    if (kind_.name == "go") {
      return {"/usr/bin/env",
              "GRPC_GO_LOG_SEVERITY_LEVEL=info",
              Folder() + "server",
              "--port=" + port,
              "--use_tls=" + tls,
              "--tls_cert_file=" + Folder() + "server1.pem",
              "--tls_key_file=" + Folder() + "server1.key"};
    }
    if (kind_.name == "java") {
      return {"/usr/bin/env",
              "java",
              "-XX:TieredStopAtLevel=1",
              "-XX:+UseSerialGC",
              "-cp",
              Folder() + "lib/*",
              "io.grpc.testing.integration.TestServiceServer",
              "--port=" + port,
              "--use_tls=" + tls};
    }
    if (!kind_.tls) return {INTEROP_COMPRESSION_SERVER, port};
    const auto files = certificates_.Make("server", {.dns_names = {"interop.example.com"}, .ip_addresses = {}});
    return {INTEROP_COMPRESSION_SERVER, port, files.certificate_file, files.key_file};
  }
  std::string UpText() const {
    if (kind_.name == "go") return "server listening on";
    return kind_.name == "java" ? "Server started on port" : "listening";
  }

  const ServerKind kind_;
  const TemporaryFolder folder_;
  TestCertificates certificates_;
  int port_ = 0;
  std::unique_ptr<BackgroundProgram> program_;
};

class GrpcInteropTest : public ::testing::TestWithParam<Case> {
 protected:
  static void TearDownTestSuite() { servers_.clear(); }

  void SetUp() override {
    const ServerKind& kind = GetParam().server;
    std::unique_ptr<RunningServer>& server = servers_[NameOf(kind)];
    if (server == nullptr) {
      server = std::make_unique<RunningServer>(kind);
      if (server->Installed()) server->Start();
    }
    if (!server->Installed()) {
      GTEST_SKIP() << "the interop server in " << kind.name << " is not installed; run tests/install-languages";
    }
    ASSERT_TRUE(server->up()) << server->Log();
    server_ = server.get();
  }

  static std::string NameOf(const ServerKind& kind) { return kind.name + (kind.tls ? "_tls" : "_plaintext"); }

  void Play(size_t connections) {
    std::vector<std::unique_ptr<CountingRelay>> relays;
    std::vector<int> ports;
    for (size_t i = 0; i < connections; ++i) {
      relays.push_back(std::make_unique<CountingRelay>(static_cast<uint16_t>(server_->port())));
      ports.push_back(relays.back()->port());
    }
    std::vector<std::string> command = {INTEROP_CLIENT, "--server_port=" + absl::StrJoin(ports, ","),
                                        "--test_case=" + GetParam().name, "--concurrent_calls=50"};
    if (GetParam().server.tls) {
      const Trust trust = server_->trust();
      command.insert(command.end(),
                     {"--use_tls=true", "--ca_file=" + trust.ca_file, "--server_host_override=" + trust.server_name});
    }
    const ProgramResult played = RunProgram(command, "", std::chrono::seconds(90));
    EXPECT_EQ(played.exit_code, 0) << played.err << "\nThe server said:\n" << server_->Log();
    const auto expected = kUncompressed.find(GetParam().name);
    if (expected == kUncompressed.end()) return;
    for (const auto& relay : relays) {
      ExpectAbout(expected->second.client_bytes, relay->client_bytes());
      ExpectAbout(expected->second.server_bytes, relay->server_bytes());
    }
  }

  // Allows a twentieth more than the payload, and the overhead of the protocols, TLS included.
  static void ExpectAbout(int64_t payload_bytes, int64_t bytes) {
    constexpr int64_t kProtocolBytes = 12'000;
    EXPECT_GE(bytes, payload_bytes);
    EXPECT_LT(bytes, payload_bytes + payload_bytes / 20 + kProtocolBytes);
  }

  RunningServer* server_ = nullptr;

 private:
  static inline std::map<std::string, std::unique_ptr<RunningServer>> servers_;
};

TEST_P(GrpcInteropTest, ByOneConnection) {
  Play(1);
}

TEST_P(GrpcInteropTest, ByFourConnections) {
  Play(kConnections);
}

// Returns the cases that the server supports. The Go and Java servers cannot detect a compressed request. The Go server
// does not compress at all, and the Java server does not compress streams. Our server has only the features of
// compression.
std::vector<Case> CasesOf(const std::string& server) {
  std::vector<std::string> names = {"client_compressed_unary",
                                    "client_compressed_unary_noprobe",
                                    "server_compressed_unary",
                                    "server_compressed_streaming",
                                    "large_unary",
                                    "server_streaming"};
  if (server != "cpp") {
    names = {"cancel_after_first_response",
             "channel_soak",
             "concurrent_large_unary",
             "custom_metadata",
             "empty_stream",
             "empty_unary",
             "large_unary",
             "orca_per_rpc",
             "rpc_soak",
             "server_streaming",
             "special_status_message",
             "status_code_and_message",
             "timeout_on_sleeping_server",
             "unimplemented_method",
             "unimplemented_service"};
  }
  if (server == "java") names.insert(names.end(), {"client_compressed_unary_noprobe", "server_compressed_unary"});
  std::vector<Case> cases;
  for (const bool tls : {false, true}) {
    for (const std::string& name : names) cases.push_back({{server, tls}, name});
  }
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  return absl::StrCat(info.param.server.tls ? "tls_" : "plaintext_", info.param.name);
}

INSTANTIATE_TEST_SUITE_P(cpp, GrpcInteropTest, ::testing::ValuesIn(CasesOf("cpp")), CaseName);
INSTANTIATE_TEST_SUITE_P(go, GrpcInteropTest, ::testing::ValuesIn(CasesOf("go")), CaseName);
INSTANTIATE_TEST_SUITE_P(java, GrpcInteropTest, ::testing::ValuesIn(CasesOf("java")), CaseName);

}  // namespace
}  // namespace sluice::testing

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/net/passed_sockets.h"

namespace boost::asio {
class io_context;
}
namespace prometheus {
class Collectable;
}

namespace sluice {

// The HTTP server for operators. It has /metrics in Prometheus' text format, /livez, /readyz, /healthz, / with links,
// and the pages that its owner adds. There is one for each process, on the process's IO thread, so it needs no lock and
// no thread.
//
// Slow clients cannot delay it: every connection has time and size limits (see HttpSession). With more than 64
// connections the oldest is closed.
class AdminServer {
 public:
  struct Page {
    std::string content_type;
    std::function<std::string()> body;  // called on the IO thread, for each request
  };

  struct Options {
    std::string listen;            // host:port; port 0 selects a free port
    std::string field = "listen";  // errors name it; a program gives the name in its config
    std::string name;              // name of the program, for the page at /
    // The metrics of /metrics, in this order. They must outlive the server, and are called on the IO thread.
    std::vector<const prometheus::Collectable*> collectables;
    // The states at /livez (whether a restart would help) and at /readyz (whether the program can take calls): 200 if
    // OK, otherwise 503 with the message. /healthz is the same as /readyz. Default: always OK. Called on the IO thread.
    std::function<absl::Status()> live;
    std::function<absl::Status()> ready;
    // Pages by path. A page at / replaces the links; the paths above cannot be replaced.
    std::map<std::string, Page> pages;
    // Time for a client to send a request, and the same time again to read the response.
    absl::Duration request_timeout = absl::Seconds(10);
    // As AsioListener::Options::passed. Only Start uses them.
    std::shared_ptr<PassedSockets> passed = nullptr;
  };

  // Returns InvalidArgument if `listen` is not a host:port, Unavailable if the address is in use or does not belong to
  // this host.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(boost::asio::io_context& context, Options options);

  // Closes every connection and waits for it. No callback of Options is called after this. Do not call it on the IO
  // thread, which must still run.
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  // The address that it listens on, with its real port: "127.0.0.1:40123", "[::1]:9100".
  const std::string& address() const { return address_; }

 private:
  class Acceptor;
  AdminServer(boost::asio::io_context& context, std::shared_ptr<Acceptor> acceptor, std::string address);

  boost::asio::io_context& context_;
  const std::shared_ptr<Acceptor> acceptor_;
  const std::string address_;
};

}  // namespace sluice

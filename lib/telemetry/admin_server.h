#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace boost::asio {
class io_context;
}
namespace prometheus {
class Collectable;
}

namespace sluice {

// The HTTP server for operators: /metrics in Prometheus' text format, /healthz, / that links to both, and the pages
// that its owner adds. One a process, on the process' IO thread, so that it needs no lock and no thread of its own.
//
// Slow clients cannot hold it up: every connection has time and size limits (see HttpSession), and the one that would
// be one too many (64) takes the place of the oldest.
class AdminServer {
 public:
  struct Page {
    std::string content_type;
    std::function<std::string()> body;  // called on the IO thread, for each request
  };

  struct Options {
    std::string listen;  // host:port; port 0 takes a free one
    std::string name;    // of the program, for the page at /
    // What /metrics shows, in this order. They outlive the server and are called on the IO thread.
    std::vector<const prometheus::Collectable*> collectables;
    // OK: 200. Any error: 503 with its message. Default: always OK. Called on the IO thread.
    std::function<absl::Status()> health;
    // By path. A page at / takes the place of the links; /metrics and /healthz are no pages.
    std::map<std::string, Page> pages;
    // For a client to send a request, and again to take the answer.
    absl::Duration request_timeout = absl::Seconds(10);
  };

  // InvalidArgument: `listen` is no host:port. Unavailable: the address is in use, or not one of this machine.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(boost::asio::io_context& context, Options options);

  // Closes every connection and waits for it: after this nothing of Options is called. Not on the IO thread, which has
  // to run still.
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  // Where it listens, with the port that it got: "127.0.0.1:40123", "[::1]:9100".
  const std::string& address() const { return address_; }

 private:
  class Acceptor;
  AdminServer(boost::asio::io_context& context, std::shared_ptr<Acceptor> acceptor, std::string address);

  boost::asio::io_context& context_;
  const std::shared_ptr<Acceptor> acceptor_;
  const std::string address_;
};

}  // namespace sluice

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>  // Boost 1.74 needs it and does not include it in C++20

#include <boost/asio/ip/tcp.hpp>

#include "lib/net/io_thread.h"

namespace sluice::testing {

// A TCP relay on loopback that counts the bytes of each side. One for each server. It accepts any number of
// connections. The counts may be read from any thread.
class CountingRelay {
 public:
  explicit CountingRelay(uint16_t server_port);
  ~CountingRelay();

  std::string address() const { return address_; }
  int port() const { return acceptor_.local_endpoint().port(); }
  int64_t client_bytes() const { return counts_->client_bytes; }  // bytes that the client has sent so far
  int64_t server_bytes() const { return counts_->server_bytes; }  // bytes that the client's socket has received so far

  struct Counts {
    std::atomic<int64_t> client_bytes = 0;
    std::atomic<int64_t> server_bytes = 0;
  };

 private:
  void Accept();

  // Shared with the connections, because their last handlers may run after the destructor.
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
  const boost::asio::ip::tcp::endpoint server_;
  IoThread io_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::string address_;
};

}  // namespace sluice::testing

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/ip/tcp.hpp>

#include "lib/telemetry/io_thread.h"

namespace sluice::testing {

// A TCP relay on loopback that counts what the server sends. One for each server; it takes any number of connections.
// The count may be read from any thread.
class CountingRelay {
 public:
  explicit CountingRelay(uint16_t server_port);
  ~CountingRelay();

  std::string address() const { return address_; }
  int64_t server_bytes() const { return *server_bytes_; }  // handed to the client's socket so far

 private:
  void Accept();

  // Shared with the connections, whose last handlers may run late.
  const std::shared_ptr<std::atomic<int64_t>> server_bytes_ = std::make_shared<std::atomic<int64_t>>(0);
  const boost::asio::ip::tcp::endpoint server_;
  IoThread io_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::string address_;
};

}  // namespace sluice::testing

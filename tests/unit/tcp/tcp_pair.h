#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>  // Boost 1.74 needs it and does not include it in C++20
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace sluice {

// A TCP connection over loopback with both ends in this process.
class TcpPair {
 public:
  using Address = boost::asio::ip::address;
  using Socket = boost::asio::ip::tcp::socket;

  // The server listens on `listen`; the client connects to `connect`.
  TcpPair(const Address& listen, const Address& connect) {
    boost::asio::ip::tcp::acceptor acceptor(context_, {listen, 0});
    client_.connect({connect, acceptor.local_endpoint().port()});
    acceptor.accept(server_);
  }
  explicit TcpPair(const Address& address) : TcpPair(address, address) {}
  TcpPair() : TcpPair(boost::asio::ip::address_v4::loopback()) {}

  Socket& client() { return client_; }
  Socket& server() { return server_; }

  // Sends bytes that the other end reads.
  void SendFromClient(size_t bytes) { Send(client_, server_, bytes); }
  void SendFromServer(size_t bytes) { Send(server_, client_, bytes); }

 private:
  // Sends in pieces that fit the socket buffers.
  static void Send(Socket& from, Socket& to, size_t bytes) {
    std::vector<char> piece(std::min<size_t>(bytes, 16 * 1024));
    for (size_t sent = 0; sent < bytes; sent += piece.size()) {
      piece.resize(std::min(piece.size(), bytes - sent));
      boost::asio::write(from, boost::asio::buffer(piece));
      boost::asio::read(to, boost::asio::buffer(piece));
    }
  }

  boost::asio::io_context context_;
  Socket client_{context_};
  Socket server_{context_};
};

inline uint64_t InodeOf(TcpPair::Socket& socket) {
  struct stat status {};
  EXPECT_EQ(fstat(socket.native_handle(), &status), 0);
  return status.st_ino;
}

}  // namespace sluice

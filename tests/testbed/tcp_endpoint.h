#pragma once

#include <cstdint>
#include <string>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/ip/tcp.hpp>

namespace sluice::testbed {

// The endpoint of an IPv4 address and a port, "10.0.0.1:7000". Throws if it is none.
inline boost::asio::ip::tcp::endpoint EndpointOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  return {boost::asio::ip::make_address(address.substr(0, colon)),
          static_cast<uint16_t>(std::stoi(address.substr(colon + 1)))};
}

}  // namespace sluice::testbed

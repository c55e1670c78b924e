#include "tests/system/apps/metrics_client.h"

#include <chrono>
#include <utility>  // Boost 1.74 needs it and does not include it in C++20

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace sluice::testing {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr auto kTimeout = std::chrono::seconds(30);

}  // namespace

std::string ScrapeMetrics(const std::string& address) {
  const std::pair<std::string, std::string> host_port = absl::StrSplit(address, ':');
  boost::system::error_code error;
  asio::io_context context;
  asio::ip::tcp::socket socket(context);
  boost::beast::flat_buffer buffer;
  http::response<http::string_body> response;
  const auto endpoints = asio::ip::tcp::resolver(context).resolve(host_port.first, host_port.second, error);
  if (!error) asio::connect(socket, endpoints, error);
  http::request<http::empty_body> request(http::verb::get, "/metrics", 11);
  request.set(http::field::host, address);
  request.keep_alive(false);
  if (!error) http::write(socket, request, error);
  if (!error) http::read(socket, buffer, response, error);
  EXPECT_FALSE(error) << address << ": " << error.message();
  EXPECT_EQ(response.result_int(), 200u) << address;
  return response.body();
}

bool WaitForMetric(const std::string& address, const std::string& line) {
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  do {
    for (const absl::string_view found : absl::StrSplit(ScrapeMetrics(address), '\n')) {
      if (found == line) return true;
    }
  } while (std::chrono::steady_clock::now() < deadline && !::testing::Test::HasFailure());
  return false;
}

}  // namespace sluice::testing

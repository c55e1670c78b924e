#include "tests/system/interop/counting_relay.h"

#include <array>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

#include "absl/strings/str_cat.h"

namespace sluice::testing {
namespace {

using boost::asio::ip::tcp;
using Error = boost::system::error_code;

// Two sockets, and a copy in each direction. Owned by its running handlers. One for each connection. Not thread-safe.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket client, std::shared_ptr<CountingRelay::Counts> counts)
      : client_(std::move(client)), server_(client_.get_executor()), counts_(std::move(counts)) {}

  void Start(const tcp::endpoint& server) {
    server_.async_connect(server, [self = shared_from_this()](Error error) {
      if (error) return;
      Error ignored;
      self->client_.set_option(tcp::no_delay(true), ignored);
      self->server_.set_option(tcp::no_delay(true), ignored);
      self->Copy(self->client_, self->server_, self->request_, self->counts_->client_bytes);
      self->Copy(self->server_, self->client_, self->answer_, self->counts_->server_bytes);
    });
  }

 private:
  using Buffer = std::array<char, 16384>;

  void Copy(tcp::socket& from, tcp::socket& to, Buffer& buffer, std::atomic<int64_t>& count) {
    from.async_read_some(boost::asio::buffer(buffer), [&, self = shared_from_this()](Error error, size_t bytes) {
      if (error) return self->Close();
      count += static_cast<int64_t>(bytes);
      boost::asio::async_write(to, boost::asio::buffer(buffer, bytes), [&, self](Error error, size_t) {
        if (error) return self->Close();
        self->Copy(from, to, buffer, count);
      });
    });
  }

  void Close() {
    Error ignored;
    client_.close(ignored);
    server_.close(ignored);
  }

  tcp::socket client_;
  tcp::socket server_;
  const std::shared_ptr<CountingRelay::Counts> counts_;
  Buffer request_;
  Buffer answer_;
};

}  // namespace

CountingRelay::CountingRelay(uint16_t server_port)
    : server_(boost::asio::ip::address_v4::loopback(), server_port),
      acceptor_(io_.context(), tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0)),
      address_(absl::StrCat("127.0.0.1:", acceptor_.local_endpoint().port())) {
  Accept();
}

CountingRelay::~CountingRelay() {
  io_.Stop();
}

void CountingRelay::Accept() {
  acceptor_.async_accept([this](Error error, tcp::socket client) {
    if (error) return;
    std::make_shared<Connection>(std::move(client), counts_)->Start(server_);
    Accept();
  });
}

}  // namespace sluice::testing

#include "research/ns3/byte_tunnels.h"

#include <deque>
#include <utility>

#include "lib/link/scheduled_connection.h"
#include "tests/simulation/byte_worker.h"

namespace sluice::testing {

// One connection to a worker.
class ByteTunnels::Tunnel final : public ScheduledConnection::User {
 public:
  explicit Tunnel(ByteTunnels& owner) : owner_(owner), connection_(owner.loop_, /*traffic_class=*/0, *this) {}

  void Connect(const std::string& target) { connection_.Connect(target); }
  void Ask(size_t bytes, std::function<void()> on_response) {
    requests_.push_back({bytes, std::move(on_response)});
    if (requests_.size() == 1) Send();
  }
  void Stop() { connection_.Stop(); }

 private:
  struct Request {
    size_t left_bytes = 0;
    std::function<void()> on_response;
  };

  void Send() { connection_.Write(LineOf({.bytes = requests_.front().left_bytes})); }

  void OnOpen() override {
    if (--owner_.connecting_ == 0) owner_.on_open_();
  }
  // The turn counts these bytes after this call, so the next request must come later.
  bool OnBytes(absl::string_view bytes) override {
    Request& request = requests_.front();
    request.left_bytes -= bytes.size();
    if (request.left_bytes > 0) return true;
    owner_.loop_.executor().Post([on_response = std::move(request.on_response)] { on_response(); });
    requests_.pop_front();
    if (!requests_.empty()) owner_.loop_.executor().Post([this] { Send(); });
    return true;
  }
  void OnWritten() override {}
  void OnEnded() override {}
  void OnOver(const absl::Status& /*why*/, int /*error_number*/) override {}

  ByteTunnels& owner_;
  std::deque<Request> requests_;  // the first one is under way
  ScheduledConnection connection_;
};

ByteTunnels::ByteTunnels(LinkLoop& loop) : loop_(loop) {}

ByteTunnels::~ByteTunnels() = default;

void ByteTunnels::Connect(const std::vector<std::string>& workers, std::function<void()> on_open) {
  on_open_ = std::move(on_open);
  connecting_ = workers.size();
  for (const std::string& worker : workers) {
    tunnels_.push_back(std::make_unique<Tunnel>(*this));
    tunnels_.back()->Connect(worker);
  }
}

void ByteTunnels::Ask(size_t worker, size_t bytes, std::function<void()> on_response) {
  tunnels_[worker]->Ask(bytes, std::move(on_response));
}

void ByteTunnels::Stop() {
  for (const auto& tunnel : tunnels_) tunnel->Stop();
}

}  // namespace sluice::testing

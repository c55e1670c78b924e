#include "lib/proxy/target_dial.h"

#include <algorithm>
#include <utility>

#include "lib/proxy/passed_tunnel.h"
#include "lib/proxy/proxy_loop.h"

namespace sluice {
namespace {

// Whether these may be the first bytes of a server of HTTP/2: the frame SETTINGS on stream 0 (RFC 9113, sections 3.4
// and 4.1), whose length is below 256 in practice.
bool BeginsHttp2Settings(absl::string_view bytes) {
  constexpr absl::string_view kTypeFlagsAndStream("\x04\x00\x00\x00\x00\x00", 6);
  if (bytes.substr(0, 2) != absl::string_view("\0\0", std::min<size_t>(bytes.size(), 2))) return false;
  return bytes.size() < 9 || bytes.substr(3, 6) == kTypeFlagsAndStream;
}

}  // namespace

TargetDial::TargetDial(ProxyLoop& proxy, const std::shared_ptr<const TargetPolicy>& policy,
                       const std::shared_ptr<ClientGroup>& group, const std::string& target, bool always,
                       OnDone on_done, std::function<void()> on_spoken)
    : proxy_(proxy), always_(always), on_done_(std::move(on_done)), on_spoken_(std::move(on_spoken)) {
  absl::StatusOr<std::shared_ptr<Target>> found = proxy_.targets().Find(policy, target, group);
  if (!found.ok()) {
    End(found.status());
    return;
  }
  target_ = *std::move(found);
  if (target_->looked_up()) {
    OnTargetStep();
  } else {
    target_->Wait(*this);
  }
}

TargetDial::~TargetDial() {
  Stop();
}

void TargetDial::Stop() {
  if (target_ != nullptr) target_->Leave(*this);
  tunnel_.reset();
}

void TargetDial::OnTargetStep() {
  const absl::Status checked = target_->Check();
  // Unavailable is the status of calls to a name that cannot be looked up.
  if (absl::IsUnavailable(checked)) return End(absl::NotFoundError(checked.message()));
  if (!checked.ok() || (target_->connected() && !always_)) return End(checked);
  Dial();
}

void TargetDial::Dial() {
  tunnel_ = std::make_unique<Tunnel>(
      proxy_.link(), PassedTunnel::ReceiveBufferBytes(proxy_, PassedTunnel::KindToWorker(proxy_)),
      Tunnel::Owner{.on_open = [this] { OnOpen(); },
                    .on_bytes = [this](absl::string_view bytes) { OnBytes(bytes); },
                    .on_backlog = [](bool) {},
                    .on_ended =
                        [this] {
                          if (spoken_.empty()) OnOver(absl::OkStatus(), true);
                        },
                    .on_over = [this](const absl::Status& why, bool opened) { OnOver(why, opened); }});
  tunnel_->Connect(target_->NextAddresses());
}

void TargetDial::OnOpen() {
  target_->OnReached(tunnel_->address());
  End(absl::OkStatus());
}

// The kernel keeps the other bytes of a server that speaks first, until the protocol of the client is known.
void TargetDial::OnBytes(absl::string_view bytes) {
  spoken_.append(bytes.data(), bytes.size());
  tunnel_->SetReading(false);
  if (BeginsHttp2Settings(spoken_)) return;
  proxy_.link().AtEndOfTurn([this, alive = std::weak_ptr<const void>(alive_)] {
    if (!alive.expired()) on_spoken_();
  });
}

// A tunnel that needs the connection after its end dials again.
void TargetDial::OnOver(const absl::Status& why, bool opened) {
  spoken_.clear();
  proxy_.link().AtEndOfTurn([over = std::shared_ptr<Tunnel>(std::move(tunnel_))] {});
  if (!opened) End(why);
}

// Later, since the tunnel may be on the stack.
void TargetDial::End(const absl::Status& reached) {
  proxy_.link().AtEndOfTurn([this, alive = std::weak_ptr<const void>(alive_), reached] {
    if (!alive.expired()) on_done_(reached);
  });
}

}  // namespace sluice

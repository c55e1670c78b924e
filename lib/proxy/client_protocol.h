#pragma once

#include "sluice/time_point.h"

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice {

// The protocol of a client's connection, once it is known: HTTP/2, or a tunnel that passes. Its ClientConnection owns
// it, and reports the events of the socket. Used on the link's thread only.
class ClientProtocol {
 public:
  virtual ~ClientProtocol() = default;

  virtual void OnBytes(absl::string_view bytes) = 0;
  virtual void OnDrained() = 0;
  // The client has gone; `why` is OK if it closed the connection properly. The protocol calls ClientConnection::End,
  // now or later.
  virtual void OnDisconnected(const absl::Status& why) = 0;
  // The client sends no more, and may still receive.
  virtual void OnClientEnded() { OnDisconnected(absl::OkStatus()); }
  virtual void AnnounceGoAway() {}
  virtual void GoAway() {}
  // Ends the calls with a status before the connection ends. FailStuck: because the client does not read.
  virtual void Fail(const absl::Status& /*why*/) {}
  virtual void FailStuck(const absl::Status& /*why*/) {}
  virtual void LookAround(TimePoint now) = 0;
  // The connection ends. No event follows.
  virtual void OnEnd() = 0;
};

}  // namespace sluice

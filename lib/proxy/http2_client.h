#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"
#include "lib/link/connection.h"
#include "lib/proxy/client_connection.h"
#include "lib/proxy/client_protocol.h"
#include "lib/proxy/proxied_call.h"
#include "lib/proxy/refused_request.h"

namespace sluice {

class ProxyLoop;

// A client that speaks HTTP/2: its session and its calls. There is one for each such connection. The proxy does not
// read a client that does not read, so the bytes held for it are bounded. Used on the link's thread only.
class Http2Client final : public ClientProtocol, public Flushable, private SessionEvents {
 public:
  // Null if there can be no session. The connection must outlive it.
  static std::unique_ptr<Http2Client> Make(ProxyLoop& proxy, ClientConnection& connection);
  ~Http2Client() override;

  // For the calls.
  ClientConnection& connection() { return connection_; }
  const std::shared_ptr<ClientGroup>& group() const { return connection_.membership().group(); }
  uint64_t id() const { return id_; }  // for the workers; see ScheduledStream::Options
  void SendHeaders(const ProxiedCall& call, const HeaderList& headers, bool end_stream);
  // If `more` is true, the bytes may wait for bytes that follow soon. The next write of the connection includes them.
  void SendData(const ProxiedCall& call, std::string bytes, bool end_stream, bool more);
  void Grant(const ProxiedCall& call, uint32_t bytes);
  void Reset(const ProxiedCall& call, Http2Error error);
  void EndSoon(const ProxiedCall& call);               // resets the stream when all of the response has left
  int64_t UnsentBytes(const ProxiedCall& call) const;  // of its response, headers included
  void Forget(const ProxiedCall& call);

  // ClientProtocol.
  void OnBytes(absl::string_view bytes) override;
  void OnDrained() override;
  void OnDisconnected(const absl::Status& why) override;
  void AnnounceGoAway() override;
  void GoAway() override;
  void Fail(const absl::Status& why) override;
  void FailStuck(const absl::Status& why) override;
  // Writes the bytes that waited for more. Ends calls that are late, which only a hung client leaves open, and calls
  // whose response the client has not read for ProxyOptions::client_stall_timeout.
  void LookAround(TimePoint now) override;
  void OnEnd() override;

  // Flushable.
  void Flush() override;

 private:
  Http2Client(ProxyLoop& proxy, ClientConnection& connection);
  // SessionEvents.
  StreamEvents* OnStream(int32_t stream) override;
  void OnPartialHead(size_t bytes) override { connection_.membership().CountOpening(bytes); }
  void OnMalformedRequest(absl::string_view why) override;
  StreamEvents* Refuse(int32_t stream, const absl::Status& why);

  int64_t UnsentBytes(int32_t stream) const;
  void FlushLater();
  void EndAnswered();
  void TellTaken();
  void EndIfDone();

  ProxyLoop& proxy_;
  ClientConnection& connection_;
  const uint64_t id_;
  bool over_ = false;
  bool flush_queued_ = false;
  bool backlog_ = false;                                   // the socket is congested; write nothing until OnDrained
  bool read_is_due_ = false;                               // a backlog has left, and the client has not been read since
  std::map<int32_t, std::shared_ptr<ProxiedCall>> calls_;  // whose stream is open
  std::map<int32_t, std::unique_ptr<RefusedRequest>> refused_;  // the same
  std::vector<int32_t> ending_;                                 // see EndSoon
  std::set<int32_t> fed_;                                       // streams with bytes that have not left
  std::unique_ptr<Http2Session> session_;                       // last: the calls outlive their streams
};

}  // namespace sluice

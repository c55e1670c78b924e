#pragma once

#include "sluice/v1/config.pb.h"

#include "absl/status/statusor.h"
#include "tools/channel_security.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 named it
class App;
}

namespace sluice {

// The TLS flags of a tool that calls a server. There is one for each program; its flags write to it.
class ClientTls {
 public:
  void AddFlags(CLI::App& app);
  // Call it after the flags have been parsed. Returns InvalidArgument with the field and the file.
  absl::StatusOr<ChannelSecurity> Configure() const;

 private:
  v1::TlsConfig config_;
};

}  // namespace sluice

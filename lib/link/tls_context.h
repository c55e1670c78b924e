#pragma once

#include <memory>

#include "sluice/tls_options.h"

#include "absl/status/statusor.h"

typedef struct ssl_ctx_st SSL_CTX;

namespace sluice {

// What TLS connections of one FanOut or BlockReader are made with. Looks for changed files when a connection is made,
// at most once in a second; files that do not load then leave the last good ones in force. One for each set of options
// of a link; for one thread at a time.
class TlsContext {
 public:
  // As ValidateTls.
  static absl::StatusOr<std::shared_ptr<TlsContext>> Create(const TlsOptions& options);

  const TlsOptions& options() const;
  // For one connection that is made now.
  std::shared_ptr<SSL_CTX> Current() const;
};

}  // namespace sluice

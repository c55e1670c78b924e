#include "lib/tls/openssl_error.h"

#include <cstring>

#include <openssl/err.h>

#include "absl/strings/str_cat.h"

namespace sluice {

std::string OpensslReason() {
  const unsigned long error = ERR_peek_last_error();  // NOLINT(google-runtime-int): OpenSSL's type
  ERR_clear_error();
  if (error == 0) return "unknown error";
  if (ERR_SYSTEM_ERROR(error)) return std::strerror(ERR_GET_REASON(error));
  const char* const reason = ERR_reason_error_string(error);
  return reason != nullptr ? std::string(reason) : absl::StrCat("OpenSSL error ", error);
}

}  // namespace sluice

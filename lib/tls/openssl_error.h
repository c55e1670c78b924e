#pragma once

#include <string>

namespace sluice {

// Returns the reason of OpenSSL's last failure on this thread, in OpenSSL's words: "bad end line". Empties the thread's
// queue of errors, so that no later call reports it.
std::string OpensslReason();

}  // namespace sluice

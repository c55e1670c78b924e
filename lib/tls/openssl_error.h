#pragma once

#include <string>

namespace sluice {

// Says why OpenSSL's last call on this thread failed, in OpenSSL's words: "bad end line". Empties the thread's queue of
// errors, so that no later call finds it there.
std::string OpensslReason();

}  // namespace sluice

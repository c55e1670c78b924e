#pragma once

#include <string>

namespace sluice {

// What OpenSSL's last call on this thread failed of, in its own words: "bad end line". Empties the thread's queue of
// errors, so that nobody else finds it there.
std::string OpensslReason();

}  // namespace sluice

#include "lib/telemetry/build_info.h"

namespace sluice {

std::string_view BuildVersion() {
  return SLUICE_VERSION;
}
std::string_view BuildCommit() {
  return SLUICE_COMMIT;
}
std::string_view BuildCompiler() {
  return SLUICE_COMPILER;
}

}  // namespace sluice

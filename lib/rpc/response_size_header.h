#pragma once

namespace sluice {

// Initial metadata in which a worker announces the bytes of its answer's message, in decimal.
inline constexpr char kResponseSizeHeader[] = "sluice-response-bytes";

}  // namespace sluice

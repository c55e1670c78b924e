#include "lib/grpc_wire/percent_encoding.h"

#include <charconv>

namespace sluice {

std::string PercentEncode(absl::string_view bytes) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string text;
  text.reserve(bytes.size());
  for (const unsigned char byte : bytes) {
    if (byte >= 0x20 && byte <= 0x7e && byte != '%') {
      text.push_back(static_cast<char>(byte));
    } else {
      text.append({'%', kDigits[byte >> 4], kDigits[byte & 0xf]});
    }
  }
  return text;
}

std::string PercentDecode(absl::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const absl::string_view digits = text.substr(i + 1, 2);
    const char* const end = digits.data() + digits.size();
    unsigned char byte = 0;
    if (text[i] == '%' && digits.size() == 2 && std::from_chars(digits.data(), end, byte, 16).ptr == end) {
      bytes.push_back(static_cast<char>(byte));
      i += 2;
    } else {
      bytes.push_back(text[i]);
    }
  }
  return bytes;
}

}  // namespace sluice

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <openssl/evp.h>

namespace coded {

uint32_t Crc32c(std::string_view bytes);

// The SHA-256 of bytes that come in parts. There is one for each object that is read or written.
class Sha256 {
 public:
  Sha256();

  void Add(std::string_view bytes);
  std::string Finish();  // the last call

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace coded

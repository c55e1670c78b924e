#include "examples/coded-read/checksums.h"

#include <isa-l/crc.h>

namespace coded {

uint32_t Crc32c(std::string_view bytes) {
  auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));  // ISA-L only reads
  return ~crc32_iscsi(data, static_cast<int>(bytes.size()), ~0U);                  // its caller inverts
}

Sha256::Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
  EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
}

void Sha256::Add(std::string_view bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

std::string Sha256::Finish() {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), &size);
  digest.resize(size);
  return digest;
}

}  // namespace coded

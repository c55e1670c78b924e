#include "tests/link/tls_server_end.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "gtest/gtest.h"

namespace sluice::testing {
namespace {

int SelectProtocol(SSL* /*ssl*/, const unsigned char** out, unsigned char* out_bytes, const unsigned char* in,
                   unsigned int in_bytes, void* arg) {
  const auto& options = *static_cast<const TlsServerEnd::Options*>(arg);
  for (const std::string& protocol : options.alpn) {
    for (unsigned int at = 0; at < in_bytes; at += 1U + in[at]) {
      if (absl::string_view(reinterpret_cast<const char*>(in + at + 1), in[at]) != protocol) continue;
      *out = in + at + 1;
      *out_bytes = in[at];
      return SSL_TLSEXT_ERR_OK;
    }
  }
  return options.alpn_is_required ? SSL_TLSEXT_ERR_ALERT_FATAL : SSL_TLSEXT_ERR_NOACK;
}

}  // namespace

TlsServerEnd::TlsServerEnd(const Options& options)
    : options_(options), context_(SSL_CTX_new(TLS_server_method())), ssl_([this] {
        SSL_CTX* const context = context_.get();
        EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context, options_.files.certificate_file.c_str()), 1);
        EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context, options_.files.key_file.c_str(), SSL_FILETYPE_PEM), 1);
        if (options_.max_version != 0) SSL_CTX_set_max_proto_version(context, options_.max_version);
        SSL_CTX_set_alpn_select_cb(context, SelectProtocol, const_cast<Options*>(&options_));
        if (!options_.client_ca_file.empty()) {
          EXPECT_EQ(SSL_CTX_load_verify_locations(context, options_.client_ca_file.c_str(), nullptr), 1);
          SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
          // Without it, OpenSSL resumes no session of a client with a certificate.
          static constexpr unsigned char kSession[] = "test";
          SSL_CTX_set_session_id_context(context, kSession, sizeof(kSession));
        }
        return SSL_new(context);
      }()) {
  SSL_set_accept_state(ssl_.get());
  SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
}

bool TlsServerEnd::Receive(absl::string_view ciphertext, std::string& output) {
  ERR_clear_error();
  BIO_write(SSL_get_rbio(ssl_.get()), ciphertext.data(), static_cast<int>(ciphertext.size()));
  std::array<char, 16384> record;
  int bytes = 0;
  while ((bytes = SSL_read(ssl_.get(), record.data(), record.size())) > 0) {
    received_.append(record.data(), static_cast<size_t>(bytes));
  }
  const int error = SSL_get_error(ssl_.get(), bytes);
  ended_ = ended_ || error == SSL_ERROR_ZERO_RETURN;
  output += TakeOutput();
  return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_ZERO_RETURN;
}

std::string TlsServerEnd::Send(absl::string_view plaintext) {
  size_t written = 0;
  EXPECT_EQ(SSL_write_ex(ssl_.get(), plaintext.data(), plaintext.size(), &written), 1);
  return TakeOutput();
}

std::string TlsServerEnd::SendEnd() {
  SSL_shutdown(ssl_.get());
  return TakeOutput();
}

std::string TlsServerEnd::TakeOutput() {
  BIO* const output = SSL_get_wbio(ssl_.get());
  std::string bytes(BIO_ctrl_pending(output), '\0');
  if (!bytes.empty()) BIO_read(output, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

bool TlsServerEnd::established() const {
  return SSL_is_init_finished(ssl_.get()) == 1;
}

std::string TlsServerEnd::server_name() const {
  const char* const name = SSL_get_servername(ssl_.get(), TLSEXT_NAMETYPE_host_name);
  return name != nullptr ? name : "";
}

}  // namespace sluice::testing

#include "tests/unit/tls/tls_end.h"

#include <algorithm>
#include <array>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "gtest/gtest.h"

namespace sluice::testing {
namespace {

using Context = std::unique_ptr<SSL_CTX, OpensslDeleter<SSL_CTX_free>>;

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

void Show(SSL_CTX* context, const TestCertificates::Files& files) {
  EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context, files.certificate_file.c_str()), 1);
  EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context, files.key_file.c_str(), SSL_FILETYPE_PEM), 1);
}

Context ServerContext(const TlsServerEnd::Options& options) {
  Context context(SSL_CTX_new(TLS_server_method()));
  Show(context.get(), options.files);
  if (options.max_version != 0) SSL_CTX_set_max_proto_version(context.get(), options.max_version);
  if (!options.client_ca_file.empty()) {
    EXPECT_EQ(SSL_CTX_load_verify_locations(context.get(), options.client_ca_file.c_str(), nullptr), 1);
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    // Without a session id context, OpenSSL resumes no session of a client with a certificate.
    static constexpr unsigned char kSession[] = "test";
    SSL_CTX_set_session_id_context(context.get(), kSession, sizeof(kSession));
  }
  return context;
}

Context ClientContext(const TlsClientEnd::Options& options) {
  Context context(SSL_CTX_new(TLS_client_method()));
  if (options.files.has_value()) Show(context.get(), *options.files);
  if (options.max_version != 0) SSL_CTX_set_max_proto_version(context.get(), options.max_version);
  EXPECT_EQ(SSL_CTX_load_verify_locations(context.get(), options.ca_file.c_str(), nullptr), 1);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  std::string protocols;
  for (const std::string& protocol : options.alpn) protocols += static_cast<char>(protocol.size()) + protocol;
  if (!protocols.empty()) {
    EXPECT_EQ(SSL_CTX_set_alpn_protos(context.get(), reinterpret_cast<const unsigned char*>(protocols.data()),
                                      static_cast<unsigned int>(protocols.size())),
              0);
  }
  return context;
}

}  // namespace

TlsEnd::TlsEnd(Context context) : context_(std::move(context)), ssl_(SSL_new(context_.get())) {
  SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
}

bool TlsEnd::Receive(absl::string_view ciphertext, std::string& output) {
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
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_ZERO_RETURN) return true;
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  error_ = reason != nullptr ? reason : "unknown";
  return false;
}

std::string TlsEnd::Send(absl::string_view plaintext) {
  size_t written = 0;
  EXPECT_EQ(SSL_write_ex(ssl_.get(), plaintext.data(), plaintext.size(), &written), 1);
  return TakeOutput();
}

std::string TlsEnd::SendEnd() {
  SSL_shutdown(ssl_.get());
  return TakeOutput();
}

std::string TlsEnd::TakeOutput() {
  BIO* const output = SSL_get_wbio(ssl_.get());
  std::string bytes(BIO_ctrl_pending(output), '\0');
  if (!bytes.empty()) BIO_read(output, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

bool TlsEnd::established() const {
  return SSL_is_init_finished(ssl_.get()) == 1;
}

TlsServerEnd::TlsServerEnd(const Options& options) : TlsEnd(ServerContext(options)), options_(options) {
  SSL_CTX_set_alpn_select_cb(context(), SelectProtocol, const_cast<Options*>(&options_));
  SSL_set_accept_state(ssl());
}

std::string TlsServerEnd::server_name() const {
  const char* const name = SSL_get_servername(ssl(), TLSEXT_NAMETYPE_host_name);
  return name != nullptr ? name : "";
}

TlsClientEnd::TlsClientEnd(const Options& options) : TlsEnd(ClientContext(options)) {
  SSL_set_connect_state(ssl());
}

}  // namespace sluice::testing

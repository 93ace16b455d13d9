#include "tls/asio_context.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <string>
#include <string_view>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

namespace ssl = boost::asio::ssl;

// A client that speaks only other protocols (h2) hears so, instead of failing on our first
// answer.
int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* chosen_length,
                   const unsigned char* offered, unsigned int offered_length, void*) {
  static constexpr unsigned char kOurs[] = "\x08http/1.1";
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, chosen_length, kOurs, sizeof kOurs - 1, offered,
                            offered_length) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

// Sessions that a client brings back skip the check of its certificate: they are of this process
// alone.
constexpr std::string_view kSessionId = "tessera";

absl::Status Refused(const boost::system::error_code& error) {
  return absl::InvalidArgumentError(
      StrCat("OpenSSL does not take these certificates: ", error.message()));
}

}  // namespace

absl::StatusOr<TlsContext> ServerContext(const Certificates& certificates) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* const raw = context->native_handle();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS);  // of connections that wait
  SSL_CTX_set_alpn_select_cb(raw, ChooseProtocol, nullptr);
  SSL_CTX_set_session_id_context(raw, reinterpret_cast<const unsigned char*>(kSessionId.data()),
                                 kSessionId.size());
  boost::system::error_code error;
  context->use_certificate_chain(boost::asio::buffer(certificates.chain), error);
  if (!error)
    context->use_private_key(boost::asio::buffer(certificates.key), ssl::context::pem, error);
  if (!error && !certificates.client_ca.empty()) {
    context->add_certificate_authority(boost::asio::buffer(certificates.client_ca), error);
    if (!error)
      context->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert, error);
  }
  if (!error) return context;
  return Refused(error);
}

absl::StatusOr<TlsContext> ClientContext(const ClientTls& client) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_client);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  // As gRPC does: whatever is named is trusted, a listener's own certificate too.
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context->native_handle()),
                              X509_V_FLAG_PARTIAL_CHAIN);
  boost::system::error_code error;
  context->add_certificate_authority(boost::asio::buffer(client.authorities), error);
  if (!error) context->set_verify_mode(ssl::verify_peer, error);
  if (!error && !client.chain.empty()) {
    context->use_certificate_chain(boost::asio::buffer(client.chain), error);
    if (!error) context->use_private_key(boost::asio::buffer(client.key), ssl::context::pem, error);
  }
  if (!error) return context;
  return Refused(error);
}

bool ExpectName(EncryptableStream& stream, const std::string& name) {
  in6_addr address;
  const bool is_address = inet_pton(AF_INET, name.c_str(), &address) == 1 ||
                          inet_pton(AF_INET6, name.c_str(), &address) == 1;
  if (is_address)
    return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(stream.session()), name.c_str()) == 1;
  return SSL_set1_host(stream.session(), name.c_str()) == 1 &&
         SSL_set_tlsext_host_name(stream.session(), name.c_str()) == 1;
}

}  // namespace tessera

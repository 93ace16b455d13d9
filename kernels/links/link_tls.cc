#include "kernels/links/link_tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "third_party/absl/str_cat.h"
#include "third_party/openssl/handles.h"

namespace tessera::kernels {
namespace {

constexpr char kCiphers[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

std::string LastError() {
  const unsigned long error = ERR_peek_last_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  ERR_clear_error();
  return reason == nullptr ? "OpenSSL says no reason" : reason;
}

// A socket's BIO that raises no SIGPIPE: OpenSSL's own writes without MSG_NOSIGNAL.
int WriteToSocket(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const int socket = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  const ssize_t sent = send(socket, bytes, static_cast<size_t>(count), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int ReadFromSocket(BIO* bio, char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const int socket = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  const ssize_t received = recv(socket, bytes, static_cast<size_t>(count), MSG_DONTWAIT);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  if (received == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(received);
}

bool HasRoom(int socket) {
  pollfd asked = {.fd = socket, .events = POLLOUT, .revents = 0};
  return poll(&asked, 1, 0) > 0;
}

long ControlSocket(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* SocketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "link socket");
    if (made == nullptr) return made;
    BIO_meth_set_write(made, WriteToSocket);
    BIO_meth_set_read(made, ReadFromSocket);
    BIO_meth_set_ctrl(made, ControlSocket);
    return made;
  }();
  return method;
}

BioHandle Text(const std::string& text) {
  return BioHandle(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::vector<X509Handle> CertificatesIn(const std::string& text) {
  std::vector<X509Handle> found;
  const BioHandle bio = Text(text);
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    found.emplace_back(certificate);
  }
  ERR_clear_error();  // the end of the text is one
  return found;
}

bool Trust(SSL_CTX* context, const std::string& authority) {
  bool any = false;
  for (const X509Handle& certificate : CertificatesIn(authority)) {
    if (X509_check_ca(certificate.get()) == 0) continue;
    any = X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate.get()) == 1 || any;
  }
  return any;
}

bool Show(SSL_CTX* context, const LinkCertificates& certificates) {
  const std::vector<X509Handle> chain = CertificatesIn(certificates.chain);
  const BioHandle bio = Text(certificates.key);
  const KeyHandle key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (chain.empty() || key == nullptr) return false;
  if (SSL_CTX_use_certificate(context, chain.front().get()) != 1) return false;
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1) return false;
  }
  return SSL_CTX_use_PrivateKey(context, key.get()) == 1;
}

absl::StatusOr<SSL_CTX*> MakeContext(const SSL_METHOD* method,
                                     const LinkCertificates& certificates) {
  SslContextHandle context(SSL_CTX_new(method));
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for TLS of links");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context.get(), kCiphers);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  // Frames say their length, so that an end inside one is seen without a last word of TLS.
  SSL_CTX_set_options(context.get(), SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  if (!Show(context.get(), certificates)) {
    return absl::InvalidArgumentError(
        StrCat("the certificate for links, or its key, is not taken: ", LastError()));
  }
  if (!Trust(context.get(), certificates.authority)) {
    return absl::InvalidArgumentError(
        "there is no authority's certificate for links: other ends could not be checked");
  }
  return context.release();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const LinkTlsContext>> LinkTlsContext::Make(
    const LinkCertificates& certificates) {
  std::shared_ptr<LinkTlsContext> made(new LinkTlsContext());
  const auto connecting = MakeContext(TLS_client_method(), certificates);
  if (!connecting.ok()) return connecting.status();
  made->connecting_ = *connecting;
  const auto accepting = MakeContext(TLS_server_method(), certificates);
  if (!accepting.ok()) return accepting.status();
  made->accepting_ = *accepting;
  made->bytes_per_key_ = certificates.bytes_per_key;
  made->allows_plain_nccl_ = certificates.allows_plain_nccl;
  return made;
}

LinkTlsContext::~LinkTlsContext() {
  SSL_CTX_free(connecting_);
  SSL_CTX_free(accepting_);
}

absl::StatusOr<std::unique_ptr<LinkTlsSession>> LinkTlsSession::Begin(
    std::shared_ptr<const LinkTlsContext> context, int socket, Side side) {
  const bool connects = side == Side::kConnects;
  SSL* const session = SSL_new(connects ? context->connecting_ : context->accepting_);
  BIO* const bio = BIO_new(SocketMethod());
  if (session == nullptr || bio == nullptr) {
    SSL_free(session);
    BIO_free(bio);
    return absl::ResourceExhaustedError("no memory for TLS of a link");
  }
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  BIO_set_init(bio, 1);
  SSL_set_bio(session, bio, bio);  // owns it
  connects ? SSL_set_connect_state(session) : SSL_set_accept_state(session);
  return std::unique_ptr<LinkTlsSession>(
      new LinkTlsSession(std::move(context), socket, session));
}

LinkTlsSession::LinkTlsSession(std::shared_ptr<const LinkTlsContext> context, int socket,
                               ssl_st* session)
    : context_(std::move(context)),
      socket_(socket),
      session_(session),
      bytes_left_of_key_(context_->bytes_per_key_) {}

LinkTlsSession::~LinkTlsSession() { SSL_free(session_); }

LinkTlsSession::Moved LinkTlsSession::Write(absl::Span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return {.failure = failure_};
  if (bytes_left_of_key_ <= 0 && !unsent_ && SSL_is_init_finished(session_) == 1) {
    // OpenSSL reads nothing while the message about a new key waits to be sent. If it waited at both
    // ends, neither would read what the other waits for; so it begins only where the socket has room.
    if (!HasRoom(socket_)) return {.wait_for = POLLOUT};
    SSL_key_update(session_, SSL_KEY_UPDATE_NOT_REQUESTED);
    bytes_left_of_key_ = context_->bytes_per_key_;
  }
  ERR_clear_error();
  const int result =
      SSL_write(session_, bytes.data(), static_cast<int>(std::min(bytes.size(), kRecordBytes)));
  Moved moved = Outcome(result);
  bytes_left_of_key_ -= static_cast<int64_t>(moved.bytes);
  // Before its end the handshake writes, and of the bytes nothing is taken.
  unsent_ = moved.wait_for != 0 && SSL_is_init_finished(session_) == 1;
  return moved;
}

LinkTlsSession::Moved LinkTlsSession::Read(absl::Span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return {.failure = failure_};
  ERR_clear_error();
  return Outcome(SSL_read(session_, bytes.data(),
                          static_cast<int>(std::min<size_t>(bytes.size(), 1 << 30))));
}

LinkTlsSession::Moved LinkTlsSession::Peek(absl::Span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return {.failure = failure_};
  ERR_clear_error();
  return Outcome(SSL_peek(session_, bytes.data(),
                          static_cast<int>(std::min<size_t>(bytes.size(), 1 << 30))));
}

LinkTlsSession::Moved LinkTlsSession::Outcome(int result) {
  if (result > 0) return {.bytes = static_cast<size_t>(result)};
  const int error_of_socket = errno;
  switch (SSL_get_error(session_, result)) {
    case SSL_ERROR_WANT_READ:
      return {.wait_for = POLLIN};
    case SSL_ERROR_WANT_WRITE:
      return {.wait_for = POLLOUT};
    case SSL_ERROR_ZERO_RETURN:
      return {.closed = true};
    case SSL_ERROR_SYSCALL:
      failure_ = StrCat("TLS: ", std::strerror(error_of_socket));
      return {.failure = failure_};
    default:
      break;
  }
  const bool plain = ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_WRONG_VERSION_NUMBER;
  const long verified = SSL_get_verify_result(session_);
  failure_ = StrCat("TLS: ", LastError());
  if (verified != X509_V_OK) failure_ += StrCat(": ", X509_verify_cert_error_string(verified));
  if (plain) failure_ += ": the other end has no certificate of the cluster (--cluster-tls)";
  return {.failure = failure_};
}

}  // namespace tessera::kernels

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

constexpr size_t kGatheredBytes = 128 << 10;  // of records, before they are sent
constexpr size_t kAheadBytes = 256 << 10;     // that are read at once
// What a record of TLS 1.3 has beside its payload: header, type, tag.
constexpr int64_t kRecordOverheadBytes = 5 + 1 + 16;

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
  // The chain is as it was given: OpenSSL would verify this end's own in each handshake to build
  // one.
  SSL_CTX_set_mode(context.get(), SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_NO_AUTO_CHAIN);
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

// What OpenSSL reads from and writes to: a session's gathered records.
struct LinkTlsBio {
  static LinkTlsSession* SessionOf(BIO* bio) {
    return static_cast<LinkTlsSession*>(BIO_get_data(bio));
  }

  static int Write(BIO* bio, const char* bytes, int count) {
    BIO_clear_retry_flags(bio);
    std::vector<std::byte>& outbound = SessionOf(bio)->outbound_;
    const auto* const first = reinterpret_cast<const std::byte*>(bytes);
    outbound.insert(outbound.end(), first, first + count);
    return count;
  }

  static int Receive(BIO* bio, void* into, size_t count) {
    LinkTlsSession& session = *SessionOf(bio);
    const ssize_t received = recv(session.socket_, into, count, MSG_DONTWAIT);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
    if (received == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    if (received > 0) session.ahead_ -= std::min(session.ahead_, static_cast<size_t>(received));
    return static_cast<int>(received);
  }

  static int Read(BIO* bio, char* bytes, int count) {
    BIO_clear_retry_flags(bio);
    LinkTlsSession& session = *SessionOf(bio);
    const auto wanted = static_cast<size_t>(count);
    if (session.read_ == session.inbound_bytes_) {
      if (session.ahead_ <= wanted) return Receive(bio, bytes, wanted);
      if (session.inbound_ == nullptr) session.inbound_.reset(new std::byte[kAheadBytes]);
      const int received =
          Receive(bio, session.inbound_.get(), std::min(session.ahead_, kAheadBytes));
      if (received <= 0) return received;
      session.inbound_bytes_ = static_cast<size_t>(received);
      session.read_ = 0;
    }
    const size_t taken = std::min(wanted, session.inbound_bytes_ - session.read_);
    std::memcpy(bytes, session.inbound_.get() + session.read_, taken);
    session.read_ += taken;
    return static_cast<int>(taken);
  }

  static long Control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }

  static const BIO_METHOD* Method() {
    static const BIO_METHOD* const method = [] {
      BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "link socket");
      if (made == nullptr) return made;
      BIO_meth_set_write(made, Write);
      BIO_meth_set_read(made, Read);
      BIO_meth_set_ctrl(made, Control);
      return made;
    }();
    return method;
  }
};

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
  BIO* const bio = BIO_new(LinkTlsBio::Method());
  if (session == nullptr || bio == nullptr) {
    SSL_free(session);
    BIO_free(bio);
    return absl::ResourceExhaustedError("no memory for TLS of a link");
  }
  connects ? SSL_set_connect_state(session) : SSL_set_accept_state(session);
  std::unique_ptr<LinkTlsSession> made(new LinkTlsSession(std::move(context), socket, session));
  BIO_set_data(bio, made.get());
  BIO_set_init(bio, 1);
  SSL_set_bio(session, bio, bio);  // owns it
  return made;
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
  if (outbound_.size() >= kGatheredBytes) {
    if (Moved sent = Send(); sent.wait_for != 0 || !sent.failure.empty()) return sent;
  }
  if (bytes_left_of_key_ <= 0 && SSL_is_init_finished(session_) == 1) {
    SSL_key_update(session_, SSL_KEY_UPDATE_NOT_REQUESTED);
    bytes_left_of_key_ = context_->bytes_per_key_;
  }
  ERR_clear_error();
  const int result =
      SSL_write(session_, bytes.data(), static_cast<int>(std::min(bytes.size(), kRecordBytes)));
  Moved moved = Outcome(result);
  bytes_left_of_key_ -= static_cast<int64_t>(moved.bytes);
  return moved.bytes > 0 ? moved : Sent(std::move(moved));
}

LinkTlsSession::Moved LinkTlsSession::Flush() {
  const std::lock_guard lock(mutex_);
  return failure_.empty() ? Send() : Moved{.failure = failure_};
}

bool LinkTlsSession::has_unsent() {
  const std::lock_guard lock(mutex_);
  return !outbound_.empty();
}

LinkTlsSession::Moved LinkTlsSession::Read(absl::Span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return {.failure = failure_};
  ERR_clear_error();
  return Sent(Outcome(
      SSL_read(session_, bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), 1 << 30)))));
}

LinkTlsSession::Moved LinkTlsSession::Peek(absl::Span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return {.failure = failure_};
  ERR_clear_error();
  return Sent(Outcome(
      SSL_peek(session_, bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), 1 << 30)))));
}

// Records are full but for a frame's last one (Link gathers them), so that a frame has no fewer
// bytes of records than this; messages of TLS between them only add to it.
void LinkTlsSession::Expect(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const int64_t left = bytes - SSL_pending(session_);
  const auto record = static_cast<int64_t>(kRecordBytes);
  ahead_ = left <= 0
               ? 0
               : static_cast<size_t>(left + (left + record - 1) / record * kRecordOverheadBytes);
}

LinkTlsSession::Moved LinkTlsSession::Send() {
  while (sent_ < outbound_.size()) {
    const ssize_t sent = send(socket_, outbound_.data() + sent_, outbound_.size() - sent_,
                              MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      sent_ += static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      return {.wait_for = POLLOUT};
    } else if (errno != EINTR) {
      failure_ = StrCat("TLS: ", std::strerror(errno));
      return {.failure = failure_};
    }
  }
  outbound_.clear();
  sent_ = 0;
  return {};
}

LinkTlsSession::Moved LinkTlsSession::Sent(Moved moved) {
  // Behind the handshake only Write has anything to send, and its thread waits for room.
  if (outbound_.empty()) return moved;
  Moved sent = Send();
  if (moved.wait_for != 0 && SSL_is_init_finished(session_) == 0 && sent.wait_for != 0) return sent;
  return moved;
}

LinkTlsSession::Moved LinkTlsSession::Outcome(int result) {
  if (result > 0) return {.bytes = static_cast<size_t>(result)};
  const int error_of_socket = errno;
  switch (SSL_get_error(session_, result)) {
    case SSL_ERROR_WANT_READ: return {.wait_for = POLLIN};
    case SSL_ERROR_WANT_WRITE: return {.wait_for = POLLOUT};
    case SSL_ERROR_ZERO_RETURN: return {.closed = true};
    case SSL_ERROR_SYSCALL:
      failure_ = StrCat("TLS: ", std::strerror(error_of_socket));
      return {.failure = failure_};
    default: break;
  }
  const bool plain = ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_WRONG_VERSION_NUMBER;
  const long verified = SSL_get_verify_result(session_);
  failure_ = StrCat("TLS: ", LastError());
  if (verified != X509_V_OK) failure_ += StrCat(": ", X509_verify_cert_error_string(verified));
  if (plain) failure_ += ": the other end has no certificate of the cluster (--cluster-tls)";
  return {.failure = failure_};
}

}  // namespace tessera::kernels

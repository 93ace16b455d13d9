#include "tls/tls_probe.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "proto/http_peer.h"
#include "third_party/absl/str_cat.h"
#include "third_party/linux/host_lookup.h"
#include "third_party/openssl/handles.h"
#include "tls/cluster_tls.h"
#include "tls/pem.h"

namespace tessera {
namespace {

// HTTP/2's first words, with an empty SETTINGS frame; a server begins with such a frame too.
constexpr std::string_view kHello("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
constexpr unsigned char kSettings = 4;  // the type of such a frame, its fourth byte
constexpr unsigned char kH2[] = "\x02h2";

using SessionHandle = std::unique_ptr<SSL, OpensslDeleter<SSL_free>>;

class Socket {
 public:
  Socket() = default;
  ~Socket() { Close(); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int descriptor() const { return descriptor_; }

  // To the first of `peer`'s addresses that answers. Later reads and writes end after as long.
  absl::Status Connect(const std::string& address, double timeout_seconds) {
    const absl::StatusOr<HttpPeer> peer = ParseHttpPeer(address, "");
    if (!peer.ok() || peer->port.empty())
      return absl::InvalidArgumentError(StrCat(address, " is not HOST:PORT"));
    const absl::StatusOr<HostAddresses> found = LookUpHost(peer->host, timeout_seconds);
    if (!found.ok()) return found.status();
    absl::Status why = absl::UnavailableError(StrCat(peer->host, " has no address"));
    for (const std::string& numeric : *found) {
      why = ConnectTo(numeric, peer->port, timeout_seconds);
      if (why.ok()) return why;
    }
    return why;
  }

 private:
  absl::Status ConnectTo(const std::string& numeric, const std::string& port,
                         double timeout_seconds) {
    Close();
    addrinfo hints = {};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(numeric.c_str(), port.c_str(), &hints, &found) != 0)
      return absl::InvalidArgumentError(StrCat(numeric, " port ", port, " is no address"));
    const std::unique_ptr<addrinfo, decltype([](addrinfo* p) { freeaddrinfo(p); })> owned(found);
    descriptor_ = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    // A send timeout bounds connect, too.
    timeval limit = {};
    limit.tv_sec = static_cast<time_t>(timeout_seconds);
    limit.tv_usec = static_cast<suseconds_t>(std::fmod(timeout_seconds, 1.0) * 1e6);
    if (descriptor_ < 0 ||
        setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
        setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
        connect(descriptor_, found->ai_addr, found->ai_addrlen) != 0) {
      const bool late = errno == EINPROGRESS || errno == EAGAIN;
      return absl::UnavailableError(late ? StrCat("no answer within ", timeout_seconds, " s")
                                         : std::string(std::strerror(errno)));
    }
    return absl::OkStatus();
  }

  void Close() {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = -1;
  }

  int descriptor_ = -1;
};

// What a port answered.
enum class Answer { kGrpc, kHttp1, kTls, kOther, kClosed };

Answer KindOf(const unsigned char* bytes, ssize_t size) {
  if (size <= 0) return Answer::kClosed;
  if (size >= 2 && bytes[0] >= 0x14 && bytes[0] <= 0x17 && bytes[1] == 3) return Answer::kTls;
  if (size >= 5 && std::memcmp(bytes, "HTTP/", 5) == 0) return Answer::kHttp1;
  const bool of_connection = size >= 9 && bytes[5] + bytes[6] + bytes[7] + bytes[8] == 0;
  if (of_connection && bytes[0] == 0 && bytes[3] == kSettings) return Answer::kGrpc;
  return Answer::kOther;
}

std::string NameWanted(const TlsProbe& probe) {
  if (!probe.tls.server_name.empty()) return probe.tls.server_name;
  const absl::StatusOr<HttpPeer> peer = ParseHttpPeer(probe.address, "");
  return peer.ok() ? peer->host : "";
}

// OpenSSL writes to a socket that the other end has closed.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    const timespec now = {0, 0};
    while (sigtimedwait(&pipe_, nullptr, &now) > 0) continue;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_, before_;
};

// One handshake, in which everything that the port shows is taken, and noted.
class Handshake {
 public:
  explicit Handshake(const TlsProbe& probe) : probe_(probe) {}

  // UNAVAILABLE: no connection. Else the handshake was tried.
  absl::Status Try() {
    if (absl::Status s = socket_.Connect(probe_.address, probe_.timeout_seconds); !s.ok()) return s;
    context_.reset(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
    SSL_CTX_set_alpn_protos(context_.get(), kH2, sizeof kH2 - 1);
    SSL_CTX_set_cert_cb(context_.get(), NoteAsked, this);
    Trust();
    ShowOwn();
    session_.reset(SSL_new(context_.get()));
    SSL_set_ex_data(session_.get(), Index(), this);
    SSL_set_verify(session_.get(), SSL_VERIFY_PEER, NoteVerified);
    if (!probe_.tls.authorities.empty()) ExpectName();
    SSL_set_fd(session_.get(), socket_.descriptor());
    ERR_clear_error();
    made_ = SSL_connect(session_.get()) == 1;
    if (!made_) NoteError();
    if (const X509* shown = SSL_get0_peer_certificate(session_.get()); shown != nullptr) {
      owner_ = OwnerOf(*shown);
      shown_ = true;
    }
    if (!made_) return absl::OkStatus();
    std::array<unsigned char, 64> bytes = {};
    SSL_write(session_.get(), kHello.data(), static_cast<int>(kHello.size()));
    ERR_clear_error();
    const int size = SSL_read(session_.get(), bytes.data(), bytes.size());
    if (size <= 0) NoteError();
    answer_ = KindOf(bytes.data(), size);
    return absl::OkStatus();
  }

  bool shown() const { return shown_; }  // a certificate came
  bool made() const { return made_; }    // this side was through
  bool asked() const { return asked_; }  // for a certificate of this side
  bool speaks_tls() const { return shown_ || alert_; }
  bool of_other_name() const { return of_other_name_; }
  const std::string& unverified() const { return unverified_; }  // why; empty: it is verified
  const CertificateOwner& owner() const { return owner_; }
  const std::string& error() const { return error_; }
  Answer answer() const { return answer_; }

 private:
  static int Index() {
    static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
    return index;
  }
  static int NoteAsked(SSL*, void* self) {
    static_cast<Handshake*>(self)->asked_ = true;
    return 1;
  }
  static int NoteVerified(int good, X509_STORE_CTX* verification) {
    if (good == 1) return 1;
    auto* session = static_cast<SSL*>(
        X509_STORE_CTX_get_ex_data(verification, SSL_get_ex_data_X509_STORE_CTX_idx()));
    auto* self = static_cast<Handshake*>(SSL_get_ex_data(session, Index()));
    const int error = X509_STORE_CTX_get_error(verification);
    if (error == X509_V_ERR_HOSTNAME_MISMATCH || error == X509_V_ERR_IP_ADDRESS_MISMATCH)
      self->of_other_name_ = true;
    else if (self->unverified_.empty())
      self->unverified_ = X509_verify_cert_error_string(error);
    return 1;
  }

  void ExpectName() {
    const std::string name = NameWanted(probe_);
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session_.get()), name.c_str()) == 1) return;
    SSL_set1_host(session_.get(), name.c_str());
    SSL_set_tlsext_host_name(session_.get(), name.c_str());
  }

  void Trust() {
    X509_STORE* const store = SSL_CTX_get_cert_store(context_.get());
    X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context_.get()), X509_V_FLAG_PARTIAL_CHAIN);
    for (const X509Handle& one : PemCertificates(probe_.tls.authorities))
      X509_STORE_add_cert(store, one.get());
  }

  void ShowOwn() {
    const std::vector<X509Handle> chain = PemCertificates(probe_.tls.chain);
    const absl::StatusOr<KeyHandle> key = PemKey(probe_.tls.key);
    if (chain.empty() || !key.ok()) return;
    SSL_CTX_use_certificate(context_.get(), chain.front().get());
    SSL_CTX_use_PrivateKey(context_.get(), key->get());
    for (size_t i = 1; i < chain.size(); ++i)
      SSL_CTX_add1_chain_cert(context_.get(), chain[i].get());
  }

  void NoteError() {
    const unsigned long error = ERR_peek_error();
    const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
    alert_ = alert_ || (error != 0 && ERR_GET_REASON(error) > SSL_AD_REASON_OFFSET);
    error_ = reason == nullptr ? "it closes the connection" : reason;
    ERR_clear_error();
  }

  const TlsProbe& probe_;
  Socket socket_;
  SslContextHandle context_;
  SessionHandle session_;
  bool shown_ = false, made_ = false, asked_ = false, alert_ = false, of_other_name_ = false;
  std::string unverified_, error_;
  CertificateOwner owner_;
  Answer answer_ = Answer::kClosed;
};

bool HasName(const CertificateOwner& owner, std::string_view wanted) {
  for (const std::string& name : owner.names) {
    if (name == wanted) return true;
  }
  return false;
}

bool IsOfCoordinator(const CertificateOwner& owner) {
  return HasName(owner, kCoordinatorServerName);
}

std::string Names(const CertificateOwner& owner) {
  std::string text;
  for (const std::string& name : owner.names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? owner.common_name : text;
}

absl::Status NoGrpc(Answer kind) {
  if (kind == Answer::kClosed) {
    return absl::UnavailableError(
        "what has this port says nothing to a client of gRPC: it hangs, or is another program");
  }
  return absl::UnavailableError(
      kind == Answer::kHttp1 ? "what answers there speaks HTTP/1, as the coordinator's --port "
                               "does: its --grpc-port is "
                               "needed"
                             : "what answers there speaks no gRPC: another program has this port");
}

absl::Status ProbePlainly(const TlsProbe& probe) {
  Socket socket;
  if (absl::Status s = socket.Connect(probe.address, probe.timeout_seconds); !s.ok()) return s;
  std::array<unsigned char, 64> bytes = {};
  (void)send(socket.descriptor(), kHello.data(), kHello.size(), MSG_NOSIGNAL);
  const ssize_t size = recv(socket.descriptor(), bytes.data(), bytes.size(), 0);
  const Answer kind = KindOf(bytes.data(), size);
  if (kind == Answer::kGrpc) return absl::OkStatus();
  if (kind == Answer::kHttp1 || kind == Answer::kOther) return NoGrpc(kind);
  Handshake handshake(probe);
  if (absl::Status s = handshake.Try(); !s.ok()) return s;
  if (!handshake.speaks_tls()) return NoGrpc(Answer::kClosed);
  const CertificateOwner& owner = handshake.owner();
  return absl::FailedPreconditionError(
      IsOfCoordinator(owner)
          ? StrCat("it speaks TLS with the certificate of a cluster (signed by ", owner.issuer,
                   "), and this side speaks none: give ", kClusterTlsFlag,
                   " with this machine's file of `tessera token create`")
          : StrCat("it speaks TLS with a certificate for ", Names(owner), " (signed by ",
                   owner.issuer,
                   "), and this side speaks none: give --tls-ca with the authority "
                   "that signed it"));
}

// Why the port's certificate is not taken; OK: it is.
absl::Status CheckShown(const TlsProbe& probe, const Handshake& handshake) {
  const CertificateOwner& owner = handshake.owner();
  if (!handshake.unverified().empty()) {
    return absl::FailedPreconditionError(
        probe.of_cluster
            ? StrCat("its certificate is of ", owner.common_name, ", signed by ", owner.issuer,
                     ", which is not the authority in this side's ", kClusterTlsFlag, " (",
                     handshake.unverified(), "): ",
                     IsOfCoordinator(owner)
                         ? "take the file that `tessera token create` made beside that "
                           "coordinator's"
                         : "give --tls-ca with the authority that signed it (the coordinator has "
                           "--tls-cert)")
            : StrCat("--tls-ca does not hold the authority of its certificate for ", Names(owner),
                     ", signed by ", owner.issuer, " (", handshake.unverified(), ")",
                     IsOfCoordinator(owner)
                         ? StrCat(": it is a cluster's, give ", kClusterTlsFlag, " instead")
                         : ": give that one"));
  }
  if (!handshake.of_other_name()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      probe.of_cluster ? StrCat("its certificate is of ", owner.common_name,
                                ", which is no coordinator's: name "
                                "the coordinator's gRPC port with --coordinator")
                       : StrCat("its certificate is for ", Names(owner), ", not for ",
                                NameWanted(probe), ": name one of these with --tls-server-name"));
}

absl::Status ProbeInTls(const TlsProbe& probe) {
  Handshake handshake(probe);
  if (absl::Status s = handshake.Try(); !s.ok()) return s;
  const std::string flag = probe.of_cluster ? kClusterTlsFlag : "--tls-ca";
  if (!handshake.speaks_tls()) {
    TlsProbe plain = {probe.address, ClientTls(), false, probe.timeout_seconds};
    if (absl::Status s = ProbePlainly(plain); !s.ok()) return s;
    return absl::FailedPreconditionError(
        StrCat("it speaks plain gRPC, and this side has ", flag, ": give the coordinator ",
               probe.of_cluster ? kClusterTlsFlag : "--tls-cert", " too, or leave ", flag, " out"));
  }
  if (absl::Status s = CheckShown(probe, handshake); handshake.shown() && !s.ok()) return s;
  if (handshake.made() && handshake.answer() == Answer::kGrpc) return absl::OkStatus();
  if (!handshake.asked()) {
    if (handshake.made()) return NoGrpc(handshake.answer());
    return absl::FailedPreconditionError(StrCat("no TLS handshake: ", handshake.error()));
  }
  if (probe.tls.chain.empty()) {
    return absl::FailedPreconditionError(
        StrCat("it asks for a certificate, and this side shows none: give ",
               IsOfCoordinator(handshake.owner()) ? std::string(kClusterTlsFlag)
                                                  : "--tls-cert and --tls-key (the coordinator has "
                                                    "--tls-client-ca)"));
  }
  const std::vector<X509Handle> own = PemCertificates(probe.tls.chain);
  const CertificateOwner owner = OwnerOf(*own.front());
  return absl::FailedPreconditionError(
      StrCat("it refuses this side's certificate, which is of ", owner.common_name, ", signed by ",
             owner.issuer, " (", handshake.error(), "): give ",
             HasName(owner, kWorkerServerName) ? kClusterTlsFlag : "--tls-cert",
             " with a file of an authority that the coordinator trusts"));
}

}  // namespace

absl::Status ProbeTls(const TlsProbe& probe) {
  const NoPipeSignal quiet;
  return probe.tls.authorities.empty() ? ProbePlainly(probe) : ProbeInTls(probe);
}

}  // namespace tessera

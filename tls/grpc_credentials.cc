#include "tls/grpc_credentials.h"

#include <fcntl.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

// gRPC reads certificates again only from files, and trusts what it finds there: a file that is
// missing for a moment, or a key beside another's certificate, ends all handshakes. So it gets
// files without a name in any folder, of checked text, each replaced as a whole.
class AnonymousFile {
 public:
  AnonymousFile() = default;
  ~AnonymousFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  AnonymousFile(const AnonymousFile&) = delete;
  AnonymousFile& operator=(const AnonymousFile&) = delete;

  std::string path() const { return StrCat("/proc/self/fd/", descriptor_); }

  // False: `errno` says why; what was there stays.
  bool Write(const std::string& text) {
    const int next = memfd_create("tessera-tls", MFD_CLOEXEC);
    if (next < 0) return false;
    bool done = write(next, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    // Readers compare times in whole seconds.
    if (done && descriptor_ >= 0) {
      struct stat before = {};
      fstat(descriptor_, &before);
      const timespec later = {before.st_mtime + 2, 0};
      const std::array<timespec, 2> times = {later, later};
      done = futimens(next, times.data()) == 0;
    }
    if (done && descriptor_ < 0) {
      descriptor_ = next;
      return true;
    }
    done = done && dup3(next, descriptor_, O_CLOEXEC) >= 0;
    close(next);
    return done;
  }

 private:
  int descriptor_ = -1;
};

struct ServedFiles {
  AnonymousFile pair;  // key and chain in one, so that no reader sees one of each
  AnonymousFile client_ca;
  std::mutex writing;                  // each watch has a thread, and may end before the other
  std::string of_clients, of_members;  // authorities

  bool WritePair(const Certificates& certificates) {
    return pair.Write(certificates.key + "\n" + certificates.chain);
  }
  bool WriteAuthorities() { return client_ca.Write(of_clients + "\n" + of_members); }
};

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(CertificateWatch& watch,
                                                                   CertificateWatch* members) {
  const auto files = std::make_shared<ServedFiles>();
  files->of_clients = watch.now()->client_ca;
  if (members != nullptr) files->of_members = members->now()->client_ca;
  const bool asks = !files->of_clients.empty(), takes = asks || members != nullptr;
  if (!files->WritePair(*watch.now()) || (takes && !files->WriteAuthorities())) {
    return absl::UnavailableError(
        StrCat("no anonymous file for the certificates of gRPC: ", strerror(errno)));
  }
  watch.OnChange([files, takes](const std::shared_ptr<const Certificates>& changed) {
    const std::lock_guard lock(files->writing);
    files->WritePair(*changed);
    files->of_clients = changed->client_ca;
    if (takes) files->WriteAuthorities();
  });
  if (members != nullptr) {
    members->OnChange([files](const std::shared_ptr<const Certificates>& changed) {
      const std::lock_guard lock(files->writing);
      files->of_members = changed->client_ca;
      files->WriteAuthorities();
    });
  }
  const std::string pair = files->pair.path();
  auto provider = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      pair, pair, takes ? files->client_ca.path() : "", 1);
  grpc::experimental::TlsServerCredentialsOptions options(provider);
  options.watch_identity_key_cert_pairs();
  if (takes) {
    options.watch_root_certs();
    // A client of another mesh shows a certificate of that one, and is a client all the same.
    options.set_cert_request_type(asks ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                       : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

std::string ProvenChain(const grpc::AuthContext& peer) {
  std::string chain;
  for (const char* property :
       {GRPC_X509_PEM_CERT_PROPERTY_NAME, GRPC_X509_PEM_CERT_CHAIN_PROPERTY_NAME}) {
    for (const grpc::string_ref& text : peer.FindPropertyValues(property))
      chain.append(text.data(), text.size());
  }
  return chain;
}

std::shared_ptr<grpc::ChannelCredentials> ChannelTls(const ClientTls& client,
                                                     grpc::ChannelArguments* arguments) {
  if (client.authorities.empty()) return grpc::InsecureChannelCredentials();
  if (!client.server_name.empty()) arguments->SetSslTargetNameOverride(client.server_name);
  std::vector<grpc::experimental::IdentityKeyCertPair> own;
  if (!client.chain.empty())
    own.push_back({.private_key = client.key, .certificate_chain = client.chain});
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(client.authorities, own));
  options.watch_root_certs();
  if (!own.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace tessera

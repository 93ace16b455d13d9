#include "tls/cluster_member.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "third_party/absl/str_cat.h"
#include "third_party/openssl/handles.h"
#include "tls/cluster_tls.h"
#include "tls/pem.h"

namespace tessera {
namespace {

// They own nothing: the certificates outlive them.
using StackHandle =
    std::unique_ptr<STACK_OF(X509), decltype([](STACK_OF(X509) * stack) { sk_X509_free(stack); })>;
using StoreHandle = std::unique_ptr<X509_STORE, OpensslDeleter<X509_STORE_free>>;
using VerificationHandle = std::unique_ptr<X509_STORE_CTX, OpensslDeleter<X509_STORE_CTX_free>>;

// Empty: it comes from one of `authorities`.
std::string WhyForeign(const std::vector<X509Handle>& chain,
                       const std::vector<X509Handle>& authorities) {
  const StoreHandle store(X509_STORE_new());
  // As in the handshakes: an authority that another one signed is enough by itself.
  X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN);
  for (const X509Handle& one : authorities) {
    if (X509_check_ca(one.get()) != 0) X509_STORE_add_cert(store.get(), one.get());
  }
  const StackHandle others(sk_X509_new_null());
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(others.get(), chain[i].get());
  const VerificationHandle verification(X509_STORE_CTX_new());
  if (verification == nullptr || X509_STORE_CTX_init(verification.get(), store.get(),
                                                     chain.front().get(), others.get()) != 1) {
    return "it cannot be verified";
  }
  X509_STORE_CTX_set_purpose(verification.get(), X509_PURPOSE_SSL_CLIENT);
  const bool verified = X509_verify_cert(verification.get()) == 1;
  ERR_clear_error();
  return verified ? ""
                  : X509_verify_cert_error_string(X509_STORE_CTX_get_error(verification.get()));
}

bool IsOfMachine(const CertificateOwner& owner, const std::string& machine) {
  const std::string in_domain = machine + ".";
  return owner.common_name == machine ||
         std::any_of(owner.names.begin(), owner.names.end(), [&](const std::string& name) {
           const bool is_host = name != kWorkerServerName;  // which all of them have
           return (is_host && (name == machine || name.starts_with(in_domain))) ||
                  name == kCoordinatorServerName || name == kAnyWorkerServerName;
         });
}

}  // namespace

absl::Status CheckClusterMember(const std::string& chain, const Certificates& cluster,
                                const std::string& worker) {
  const std::vector<X509Handle> shown = PemCertificates(chain);
  if (shown.empty()) {
    return absl::FailedPreconditionError(
        StrCat("worker ", worker, " shows no certificate of the cluster: give it ", kClusterTlsFlag,
               " with its file of `tessera token create`"));
  }
  const CertificateOwner owner = OwnerOf(*shown.front());
  if (const std::string why = WhyForeign(shown, PemCertificates(cluster.client_ca)); !why.empty()) {
    return absl::FailedPreconditionError(StrCat(
        "worker ", worker, " shows a certificate of ", owner.common_name, ", which ", owner.issuer,
        " signed, and not this cluster's authority (", why, "): give it ", kClusterTlsFlag,
        " with a file that `tessera token create` makes beside the coordinator's"));
  }
  const std::string machine = worker.substr(0, worker.find('/'));
  if (IsOfMachine(owner, machine)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("worker ", worker, " shows the certificate of machine ", owner.common_name,
             ": start it as --name ", owner.common_name, "/0, or give it ", kClusterTlsFlag,
             " with a file of `tessera token create --machine ", machine,
             "` (or --pool NAME, for a file that machines share)"));
}

}  // namespace tessera

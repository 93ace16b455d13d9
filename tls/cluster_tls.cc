#include "tls/cluster_tls.h"

#include <openssl/x509v3.h>

#include <algorithm>
#include <vector>

#include "third_party/absl/str_cat.h"
#include "tls/pem.h"

namespace tessera {
namespace {

CertificateFiles ClusterFiles(const std::string& file) {
  return {.certificate = file, .key = file, .client_ca = file, .flag = kClusterTlsFlag};
}

}  // namespace

absl::StatusOr<Certificates> ReadClusterTls(const std::string& file) {
  absl::StatusOr<Certificates> read = ReadCertificates(ClusterFiles(file));
  if (!read.ok()) return read.status();
  const std::vector<X509Handle> all = PemCertificates(read->client_ca);
  const bool has_authority = std::any_of(
      all.begin(), all.end(), [](const X509Handle& one) { return X509_check_ca(one.get()) != 0; });
  if (has_authority && X509_check_ca(all.front().get()) != 0) {
    return absl::InvalidArgumentError(
        StrCat(kClusterTlsFlag, " ", file,
               ": it is the authority's own file, which makes machines of the cluster and belongs "
               "to none of them: give the one that `tessera token create` wrote for this machine"));
  }
  if (has_authority) return read;
  return absl::InvalidArgumentError(
      StrCat(kClusterTlsFlag, " ", file,
             ": it holds no authority's certificate: key, certificate and authority are expected, "
             "as `tessera token create` writes them"));
}

absl::StatusOr<std::unique_ptr<CertificateWatch>> WatchClusterTls(const std::string& file) {
  const absl::StatusOr<Certificates> read = ReadClusterTls(file);
  if (!read.ok()) return read.status();
  return CertificateWatch::Start(ClusterFiles(file));
}

}  // namespace tessera

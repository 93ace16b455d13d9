// TLS among the processes of a cluster: coordinator and workers each have one file (PEM) with a
// key, its certificate, and the authority that signed all of them; `tessera token create` makes
// them. Workers ask the coordinator and each other for such a certificate; the names in it say
// whether its owner may answer as the coordinator.
//
// Thread rule: pure but for reading files.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tls/certificates.h"

namespace tessera {

inline constexpr char kClusterTlsFlag[] = "--cluster-tls";
// gRPC metadata of CheckWorker: the program that is checked has --cluster-tls.
inline constexpr char kClusterTlsKey[] = "tessera-cluster-tls";
// DNS names that certificates have, whatever the machine is called.
inline constexpr char kCoordinatorServerName[] = "tessera-coordinator";
inline constexpr char kWorkerServerName[] = "tessera-worker";

// Chain and authorities are the file's certificates. INVALID_ARGUMENT as ReadCertificates, and
// where the file has no authority.
absl::StatusOr<Certificates> ReadClusterTls(const std::string& file);
// For a listener that asks for such certificates.
absl::StatusOr<std::unique_ptr<CertificateWatch>> WatchClusterTls(const std::string& file);

}  // namespace tessera

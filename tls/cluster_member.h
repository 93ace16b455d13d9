// Who the other end of a call is, among the members of a cluster (cluster_tls.h): decided from the
// certificate that it proved to own, and from nothing that it says.
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tls/certificates.h"

namespace tessera {

// The DNS name of a certificate that machines share (`tessera token create --pool`): its owners'
// workers may have any name.
inline constexpr char kAnyWorkerServerName[] = "tessera-any-worker";

// Whether `chain` (PEM: the certificate that the other end proved to own, then its intermediates)
// lets it be `worker`, "machine/index". It must come from an authority of `cluster`, and name that
// machine, by its common name or a DNS name, or be the coordinator's, or one that machines share.
// FAILED_PRECONDITION says what else it is, and names the flag; so it does where `chain` is empty,
// because the other end showed none.
absl::Status CheckClusterMember(const std::string& chain, const Certificates& cluster,
                                const std::string& worker);

}  // namespace tessera

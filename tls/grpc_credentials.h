// TLS of gRPC's listeners and channels. Thread rule: thread-safe.
#pragma once

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tls/certificates.h"
#include "tls/client_tls.h"

namespace tessera {

// A listener that shows the certificates of `watch`, new ones to handshakes that begin up to a
// second after they change, and asks clients for one where client_ca is set. `watch` outlives the
// process's use of it, and so does `members`: where that is not null, clients may show certificates
// of its authority too, and without client_ca any other, or none: whose they are is then up to
// CheckClusterMember (cluster_member.h). UNAVAILABLE: the system gives no anonymous file.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(
    CertificateWatch& watch, CertificateWatch* members = nullptr);

// The certificates that the other end of a call proved to own (PEM), its own first; empty: none.
// Whoever signed them.
std::string ProvenChain(const grpc::AuthContext& peer);

// For a channel to such a listener; plain where `client` has no authorities. Sets the name that the
// listener's certificate must have among `arguments`.
std::shared_ptr<grpc::ChannelCredentials> ChannelTls(const ClientTls& client,
                                                     grpc::ChannelArguments* arguments);

}  // namespace tessera

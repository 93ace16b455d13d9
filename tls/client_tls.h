// What a program needs to reach a coordinator whose ports speak TLS.
// Thread rule: pure but for reading files.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tls/certificates.h"

namespace tessera {

// As flags give them.
struct ClientTlsFiles {
  // --tls-ca: authorities to trust; "system": this machine's; empty: no TLS
  std::string ca = "";
  // --tls-cert, --tls-key: shown where the listener asks for them
  std::string certificate = "", key = "";
  std::string server_name = "";  // --tls-server-name: to be found in the listener's certificate;
                                 // empty: the host of its address
  // --cluster-tls (cluster_tls.h): its certificate is shown, which proves that its owner is of the
  // cluster; where there is no --tls-ca, also its authority and the coordinator's name hold
  std::string cluster = "";
};

// PEM text of such files; empty ones where no file is named.
struct ClientTls {
  std::string authorities = "";  // empty: no TLS
  std::string chain = "", key = "";
  std::string server_name = "";
};

// INVALID_ARGUMENT names the flag, and what is wrong with its file.
absl::StatusOr<ClientTls> ReadClientTls(const ClientTlsFiles& files);

// Among the members of a cluster (cluster_tls.h): for a channel to the one that has `server_name`.
ClientTls ToClusterMember(const Certificates& own, const std::string& server_name);

}  // namespace tessera

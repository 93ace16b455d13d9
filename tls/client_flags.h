// The flags of programs that reach a coordinator. Thread rule: none.
#pragma once

#include "third_party/cli11/flags.h"
#include "tls/client_tls.h"

namespace tessera {

// --tls-ca, --tls-cert, --tls-key and --tls-server-name, in a group of their own in --help.
void AddClientTlsFlags(const Command& command, ClientTlsFiles& files);
// --cluster-tls, for what calls the coordinator's gRPC port.
void AddClusterTlsFlag(const Command& command, ClientTlsFiles& files);

}  // namespace tessera

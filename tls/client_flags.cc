#include "tls/client_flags.h"

namespace tessera {

void AddClientTlsFlags(const Command& command, ClientTlsFiles& files) {
  constexpr char kGroup[] = "For a coordinator with --tls-cert";
  command
      .AddOption("--tls-ca", files.ca,
                 "File with the authority (PEM) that signed the coordinator's certificate; system: "
                 "those of this machine")
      .Group(kGroup);
  command
      .AddOption("--tls-cert", files.certificate,
                 "File with the certificate to show, where the coordinator has --tls-client-ca")
      .Group(kGroup);
  command.AddOption("--tls-key", files.key, "File with the key of --tls-cert").Group(kGroup);
  command
      .AddOption("--tls-server-name", files.server_name,
                 "Name that the coordinator's certificate must have; default: the host of its "
                 "address")
      .Group(kGroup);
}

void AddClusterTlsFlag(const Command& command, ClientTlsFiles& files) {
  command.AddOption("--cluster-tls", files.cluster,
                    "File with a key, its certificate and the cluster's authority (PEM), as "
                    "`tessera token create` writes one for each machine: the cluster's processes "
                    "then speak TLS, and show each other such certificates");
}

}  // namespace tessera

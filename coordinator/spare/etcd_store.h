// A LeaderStore in etcd (version 3.4 and later), by its gateway: JSON over HTTP, plain or inside
// TLS. Thread rule: as LeaderStore.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/http/json_post.h"
#include "coordinator/spare/leader_store.h"
#include "tls/client_tls.h"

namespace tessera::coordinator {

struct EtcdPlace {
  std::vector<HttpPeer> members;
  std::string cluster;  // what keys begin with: "/tessera/CLUSTER/"
  bool encrypted = false;
  ClientTlsFiles files;    // where it is
  std::string login_file;  // with USER:PASSWORD; empty: etcd asks for none
};

// "etcd://HOST:PORT[,HOST:PORT...][/CLUSTER][?login=FILE]"; without a port 2379, without a cluster
// "default". "etcds://..." is inside TLS, and takes ca=, cert=, key= and name= too, the files and
// the name of ClientTlsFiles; without ca= this machine's authorities. InvalidArgument names what is
// expected.
absl::StatusOr<EtcdPlace> ParseEtcdUrl(const std::string& url);

// Each call asks the member that answered last first, each for at most `patience_seconds`. Reads
// the files; InvalidArgument names the one that is not as it must be.
absl::StatusOr<std::unique_ptr<LeaderStore>> MakeEtcdStore(const EtcdPlace& place,
                                                           double patience_seconds);

}  // namespace tessera::coordinator

// A LeaderStore in etcd (version 3.4 and later), by its gateway: JSON over plain HTTP.
// Thread rule: as LeaderStore.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/http/json_post.h"
#include "coordinator/spare/leader_store.h"

namespace tessera::coordinator {

struct EtcdPlace {
  std::vector<HttpPeer> members;
  std::string cluster;  // what keys begin with: "/tessera/CLUSTER/"
};

// "etcd://HOST:PORT[,HOST:PORT...][/CLUSTER]"; without a port 2379, without a cluster "default".
// InvalidArgument names what is expected.
absl::StatusOr<EtcdPlace> ParseEtcdUrl(const std::string& url);

// Each call asks the member that answered last first, each for at most `patience_seconds`.
std::unique_ptr<LeaderStore> MakeEtcdStore(std::vector<HttpPeer> members, double patience_seconds);

}  // namespace tessera::coordinator

// `tessera token create`: what the processes of a cluster need to trust each other, made in one
// folder, from which each machine gets its files.
//
//   FOLDER/token             the cluster's secret, for --cluster-token-file of all
//   FOLDER/authority.pem     certificate and key of the cluster's authority; stays where it is safe
//   FOLDER/coordinator.pem   for --cluster-tls of the coordinator
//   FOLDER/NAME.pem          for --cluster-tls of the workers on that machine, which are NAME/0,
//                            NAME/1, ...; of a pool: for workers of any name
//
// All have mode 0600. What is there already stays: machines can be added later.
// Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "third_party/cli11/flags.h"

namespace tessera::deploy {

struct TokenFlags {
  std::string folder;
  std::vector<std::string> machines;
  std::vector<std::string> pools;  // files that machines share
  int days = 3650;                 // that new certificates hold
};

void AddToken(const Command& app, TokenFlags& flags);

// Returns what was made, and the next commands. INVALID_ARGUMENT: a machine's name that is no
// file's, or an authority of another tool; UNAVAILABLE: the folder cannot be written.
absl::StatusOr<std::string> CreateToken(const TokenFlags& flags);

}  // namespace tessera::deploy

// `tessera profile`: has a coordinator measure its workers and links, and writes the cluster
// description that `tessera plan` and `--cluster` take.
//
// Thread rule: from main alone. Prints the description or where it is; errors to stderr.
#pragma once

#include <string>

#include "deploy/cluster_client.h"
#include "third_party/cli11/flags.h"

namespace tessera::deploy {

struct ProfileFlags {
  CoordinatorFlags coordinator;
  std::string out;             // empty: stdout
  bool force = false;          // replaces `out`
  bool while_serving = false;  // also while requests are in flight
};

// `flags` must outlive the parsing.
void AddProfile(const Command& app, ProfileFlags& flags);

// The exit code.
int RunProfile(const ProfileFlags& flags);

}  // namespace tessera::deploy

// The flags of `tessera up`: its own, those it shares with the programs it starts, and those of
// tessera-coordinator that it hands on as they are. All come from the command line, the environment
// or --config, in this order, and reach the programs on their command lines (keys in files).
// Thread rule: before other threads start.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "deploy/up.h"
#include "third_party/cli11/flags.h"

namespace tessera::deploy {

struct UpFlags {
  UpOptions options;
  std::string devices;  // --devices, not yet looked for
  std::string ask;      // a question to ask once everything is up
  bool raw = false;     // the question is continued as it stands, without a chat template
  std::string expect;   // what its answer must be
  bool once = false;
  std::string config;  // YAML file
};

// Adds the subcommand; `flags` must outlive the parsing. Returns it.
Command AddUp(const Command& app, UpFlags& flags);

// After parsing: fills in what --config says, reads the files of keys, collects what is handed on,
// and takes out of the environment what the started programs would otherwise read a second time.
// InvalidArgument naming the flag, the key or the file.
absl::Status FinishUp(const Command& up, UpFlags& flags);

}  // namespace tessera::deploy

// `tessera check`: whether a worker that is started here, with these flags, could join: a line for
// each thing that stops people, with what to do.
//
// Thread rule: from main alone. Takes the worker's ports while it asks, and gives them back.
#pragma once

#include <string>
#include <vector>

#include "third_party/cli11/flags.h"
#include "tls/client_tls.h"

namespace tessera::deploy {

// As tessera-worker has them.
struct CheckFlags {
  std::string coordinator = "127.0.0.1:8001";
  std::string cluster_token_file;
  std::string name;
  std::string listen = "127.0.0.1:0";
  std::string advertise, advertise_link, advertise_kv;
  int link_port = 0, kv_port = 0;
  std::string model_folder;
  ClientTlsFiles tls;
};

// `flags` must outlive the parsing.
void AddCheck(const Command& app, CheckFlags& flags);

struct CheckLine {
  std::string what;      // "coordinator", "token", "clock", ...
  std::string problem;   // with the remedy; empty: all is well
  std::string found;     // in words
  bool skipped = false;  // it needs what an earlier line misses; `found` says what
};

std::string ShowCheck(const std::vector<CheckLine>& lines);

// The exit code: 1 where a line has a problem.
int RunCheck(const CheckFlags& flags);

}  // namespace tessera::deploy

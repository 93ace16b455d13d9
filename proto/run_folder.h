// The folder of a run: where the programs of one user on one machine find what a coordinator on a
// loopback port made at its start, so that other users are kept out and nobody needs a flag.
//
//   BASE/tessera/HOST-PORT/           0700, of the user; PORT: the coordinator's for gRPC
//     cluster_token, admin_key        0600, one line each; those that no flag names
//     *.sock                          where workers take links
//     members, coordinator            locks: of all programs of the run (shared), and of its
//                                     coordinator; they say who lives, whatever a crash left behind
//
// BASE outlives the login: $XDG_STATE_HOME or ~/.local/state; where that cannot be used (no such
// folder, a file system without locks) $XDG_RUNTIME_DIR, then a folder of the user's in /tmp. HOST
// is the machine's name, since homes are shared. Whoever leaves last removes the folder: a
// coordinator that is restarted while workers live finds the secrets that they know. What killed
// programs left at other ports goes when a coordinator starts.
//
// Thread rule: one thread at a time; several processes at any time.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera {

inline constexpr char kClusterTokenFile[] = "cluster_token", kAdminKeyFile[] = "admin_key";

// Empty: not kept in the folder.
struct RunSecrets {
  std::string cluster_token;
  std::string admin_key;
};

// 256 random bits, in hexadecimal digits.
std::string DrawSecret();

class RunFolder {
 public:
  // For a coordinator. Keeps the non-empty ones of `secrets` there. With `keep`, the folder's own
  // take their place where it has them: those of an earlier run at this port. ALREADY_EXISTS: a
  // coordinator of this user that runs has the port. FAILED_PRECONDITION names the folders that
  // cannot be used, and the fix.
  static absl::StatusOr<std::unique_ptr<RunFolder>> Claim(int port, RunSecrets secrets, bool keep);
  // For a worker of the coordinator that `name` stands for: the port of one on this machine, or
  // else any word. Null: no folder can be used.
  static std::unique_ptr<RunFolder> Join(std::string_view name);
  // What the coordinator that runs at this gRPC port made for this user's programs, empty ones for
  // what flags name. Nullopt: no coordinator of this user runs there.
  static std::optional<RunSecrets> Find(int port);
  // The last member removes the folder.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Only a claimed folder has them.
  const RunSecrets& secrets() const { return secrets_; }

 private:
  class Lock;
  RunFolder(std::filesystem::path path, std::unique_ptr<Lock> member);
  static absl::StatusOr<std::unique_ptr<RunFolder>> Enter(const std::filesystem::path& path);
  absl::Status Keep(RunSecrets secrets, bool keep);
  void RemoveDeadSiblings() const;

  const std::filesystem::path path_;
  std::unique_ptr<Lock> member_;
  std::unique_ptr<Lock> coordinator_;  // null: not claimed
  RunSecrets secrets_;
};

// The port where `address` (host:port) is on this machine's loopback; else nullopt.
std::optional<int> LoopbackPort(std::string_view address);

}  // namespace tessera

// The secrets of this coordinator: the cluster token of its workers and the admin key. Flags name
// them; on loopback, what no flag names is made at start and kept in the folder of the run
// (proto/run_folder.h), where the same user's programs find it. --open-loopback asks for neither.
//
// Thread rule: main's; AdminAccess::place and token_advice on any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/coordinator_options.h"
#include "coordinator/deployment/admin_access.h"
#include "proto/run_folder.h"

namespace tessera::coordinator {

class ClusterKeys {
 public:
  // With a gRPC port that is chosen already, the secrets can be found when this returns, before
  // anybody can connect. InvalidArgument names the flag.
  static absl::StatusOr<std::unique_ptr<ClusterKeys>> Make(const CoordinatorOptions& options);
  // For a port that the system chose; nothing else otherwise. Before anybody hears of the port.
  absl::Status Publish(int grpc_port);

  // Empty: none is asked for.
  const std::string& token() const { return token_; }
  // This object must outlive it.
  AdminAccess admin() const;
  // Where a worker of this user, or of another, gets the token; for refusals.
  std::string token_advice() const;

 private:
  absl::Status Claim(int grpc_port, bool keep);
  // The folder's file of that name; empty: there is no folder.
  std::string FileOfRun(const char* name) const;

  bool open_ = false;
  bool chosen_ = false;  // the port was
  bool token_is_made_ = false, admin_key_is_made_ = false;
  std::string token_, admin_key_;
  mutable std::mutex mutex_;           // guards folder_, which the port decides
  std::unique_ptr<RunFolder> folder_;  // null: all is named, or nothing is asked for
};

}  // namespace tessera::coordinator

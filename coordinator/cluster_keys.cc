#include "coordinator/cluster_keys.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/protocol.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

absl::StatusOr<std::string> ReadOptional(const std::string& path) {
  return path.empty() ? absl::StatusOr<std::string>("") : ReadTokenFile(path);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterKeys>> ClusterKeys::Make(const CoordinatorOptions& options) {
  absl::StatusOr<std::string> token = ReadOptional(options.cluster_token_file);
  if (!token.ok()) return token.status();
  absl::StatusOr<std::string> admin_key = ReadOptional(options.admin_key_file);
  if (!admin_key.ok()) return admin_key.status();
  auto keys = std::make_unique<ClusterKeys>();
  keys->token_ = *std::move(token);
  keys->admin_key_ = *std::move(admin_key);
  if (!IsLoopback(options.host)) {
    if (options.open_loopback) {
      return absl::InvalidArgumentError(
          absl::StrCat("--open-loopback needs a --host on loopback; ", options.host, " is none"));
    }
    if (!keys->token_.empty()) return keys;
    return absl::InvalidArgumentError(
        absl::StrCat("--host ", options.host,
                     " lets other machines register workers: give --cluster-token-file"));
  }
  keys->open_ = options.open_loopback;
  if (keys->open_) {
    Logger("coordinator")
        .warn(
            "--open-loopback: every user of this machine may register workers, see the cluster and "
            "change its plan, but for what --cluster-token-file and --admin-key-file guard");
    return keys;
  }
  keys->token_is_made_ = keys->token_.empty();
  keys->admin_key_is_made_ = keys->admin_key_.empty();
  if (keys->token_is_made_) keys->token_ = DrawSecret();
  if (keys->admin_key_is_made_) keys->admin_key_ = DrawSecret();
  keys->chosen_ = options.grpc_port != 0;
  if (!keys->chosen_) return keys;
  if (absl::Status s = keys->Claim(options.grpc_port, /*keep=*/true); !s.ok()) return s;
  return keys;
}

absl::Status ClusterKeys::Publish(int grpc_port) {
  return chosen_ ? absl::OkStatus() : Claim(grpc_port, /*keep=*/false);
}

absl::Status ClusterKeys::Claim(int grpc_port, bool keep) {
  if (!token_is_made_ && !admin_key_is_made_) return absl::OkStatus();
  auto folder = RunFolder::Claim(grpc_port,
                                 {.cluster_token = token_is_made_ ? token_ : "",
                                  .admin_key = admin_key_is_made_ ? admin_key_ : ""},
                                 keep);
  if (!folder.ok()) return folder.status();
  const RunSecrets& kept = (*folder)->secrets();
  if (token_is_made_) token_ = kept.cluster_token;
  if (admin_key_is_made_) admin_key_ = kept.admin_key;
  Logger("coordinator")
      .info("{} of this run in {}: programs of this user find what they need there",
            token_is_made_ && admin_key_is_made_ ? "cluster token and admin key"
            : token_is_made_                     ? "cluster token"
                                                 : "admin key",
            (*folder)->path().string());
  const std::lock_guard lock(mutex_);
  folder_ = *std::move(folder);
  return absl::OkStatus();
}

std::string ClusterKeys::FileOfRun(const char* name) const {
  const std::lock_guard lock(mutex_);
  return folder_ == nullptr ? "" : (folder_->path() / name).string();
}

AdminAccess ClusterKeys::admin() const {
  return {.key = admin_key_, .open = open_, .place = [this]() -> std::string {
            const std::string file = admin_key_is_made_ ? FileOfRun(kAdminKeyFile) : "";
            if (file.empty()) return "";
            return absl::StrCat(file, ", which user ", geteuid(), " may read (--admin-key-file)");
          }};
}

std::string ClusterKeys::token_advice() const {
  const std::string file = token_is_made_ ? FileOfRun(kClusterTokenFile) : "";
  if (file.empty()) return "start the worker with the coordinator's --cluster-token-file";
  return absl::StrCat("start the worker again, as user ", geteuid(), ", who may read ", file,
                      ", or with that --cluster-token-file");
}

}  // namespace tessera::coordinator

#include "worker/run_membership.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "kernels/links/link_address.h"
#include "kernels/links/link_socket.h"
#include "proto/protocol.h"
#include "third_party/spdlog/log.h"
#include "third_party/spdlog/log_throttle.h"

namespace tessera::worker {
namespace {

constexpr std::chrono::milliseconds kLookAgain(100);
constexpr std::chrono::seconds kSayAgain(10);
constexpr double kConnectSeconds = 1;

bool SomebodyListens(const std::string& address) {
  const auto parsed = kernels::ParseLinkAddress(address);
  return parsed.ok() && kernels::ConnectLink(*parsed, kConnectSeconds).ok();
}

// The token of the coordinator at that port, which keeps its secrets before it listens.
absl::StatusOr<std::string> AwaitToken(const std::string& coordinator, int port,
                                       const std::function<bool()>& stopped) {
  LogThrottle said(kSayAgain);
  while (!stopped()) {
    const bool listens = SomebodyListens(coordinator);
    if (std::optional<RunSecrets> run = RunFolder::Find(port); run.has_value())
      return std::move(run->cluster_token);
    if (listens) return "";
    if (said.Pass(std::chrono::steady_clock::now()).has_value()) {
      Logger("worker").warn("no coordinator runs at {}; trying again until one does", coordinator);
    }
    std::this_thread::sleep_for(kLookAgain);
  }
  return absl::CancelledError("a signal came before the coordinator did");
}

}  // namespace

absl::StatusOr<RunMembership> JoinRun(const WorkerOptions& options,
                                      const std::function<bool()>& stopped) {
  // Several coordinators have one token, which a file holds.
  const std::string coordinator = options.coordinator.substr(0, options.coordinator.find(','));
  const std::optional<int> port = LoopbackPort(coordinator);
  RunMembership run;
  if (!options.cluster_token_file.empty()) {
    auto token = ReadTokenFile(options.cluster_token_file);
    if (!token.ok()) return token.status();
    run.token = *std::move(token);
  } else if (port.has_value()) {
    auto token = AwaitToken(coordinator, *port, stopped);
    if (!token.ok()) return token.status();
    run.token = *std::move(token);
  }
  std::string name = port.has_value() ? std::to_string(*port) : coordinator;
  if (name.empty()) name = "workers";
  run.folder = RunFolder::Join(name);
  if (run.folder == nullptr) {
    Logger("worker").warn(
        "no folder of this user for Unix sockets (XDG_STATE_HOME): links to workers of this "
        "machine go over TCP");
  }
  return run;
}

}  // namespace tessera::worker

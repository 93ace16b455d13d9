// Where a worker takes links from the other workers of its replica, and opens links to them.
//
// Every link begins with a handshake (kernels/links/handshake.h): proof of the cluster token, then
// v1::LinkIdentity of both ends. Refused by name: another protocol version, an incarnation or plan
// epoch that is not the one in force here, a member or kind that the plan has no such link for.
// ABORTED: the formation is not being joined here yet; the dialer tries the same address again.
//
// A link of LINK_KIND_PROBE belongs to no formation: this worker echoes what comes over it, one
// such link at a time, and none begins while a formation is being joined.
//
// Thread rule: any thread, one Join at a time. The thread of a kernels::LinkServer takes
// connections, those first that this worker waits for; one more echoes. Every wait is bounded.
#pragma once

#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/links/link.h"
#include "kernels/links/link_server.h"
#include "kernels/links/link_tls.h"
#include "proto/worker.pb.h"
#include "third_party/spdlog/log_throttle.h"
#include "worker/formation/formation.h"

namespace tessera::worker {

struct LinkHubOptions {
  // kernels/links/link_address.h: "127.0.0.1:0", "unix:/run/user/0/tessera-1.sock".
  std::vector<std::string> listen;
  std::string cluster_token;                                    // empty: none is asked for
  uint64_t incarnation = 0;                                     // of this worker
  std::shared_ptr<const kernels::LinkTlsSource> tls = nullptr;  // of links over TCP; null: plain
};

class LinkHub {
 public:
  static absl::StatusOr<std::unique_ptr<LinkHub>> Start(LinkHubOptions options);
  ~LinkHub();

  // In the order of LinkHubOptions::listen, with the ports that the system chose.
  std::vector<std::string> addresses() const { return server_->addresses(); }
  // What all links have moved since the start, and how many connections were refused for good. Of
  // closed links only their sum is kept.
  v1::WorkerCounters counters();

  // Formation::Join over links of this hub. `request.fence().worker_incarnation()` is this
  // worker's.
  absl::StatusOr<std::unique_ptr<Formation>> Join(const v1::ConfigureRequest& request, KvBlocks kv,
                                                  const FormationTimes& times,
                                                  const JoinWatch& watch,
                                                  kernels::GroupMaker* maker = nullptr);

  // Measures the way to the worker that the request names; blocks for up to kProbeSeconds. ABORTED:
  // one of the two is joining a replica or is being measured; later it works. Errors name the peer.
  absl::StatusOr<v1::ProbeLinkReply> Probe(const v1::ProbeLinkRequest& request);

 private:
  // A Join that is under way.
  struct Joining {
    const v1::ConfigureRequest* request = nullptr;
    FormationPlace place;
    std::map<std::pair<int, v1::LinkKind>, std::unique_ptr<kernels::Link>> arrived;
  };

  // Links that are counted together.
  struct Counted {
    v1::LinkKind kind = v1::LINK_KIND_UNSPECIFIED;
    bool is_unix = false;
    uint64_t peer_incarnation = 0;  // 0: links that are closed
    auto operator<=>(const Counted&) const = default;
  };

  explicit LinkHub(LinkHubOptions options) : options_(std::move(options)) {}
  void CountLocked(kernels::Link* link, v1::LinkKind kind, uint64_t peer_incarnation);
  void Take(kernels::AcceptedLink accepted);
  void NoteRefused(const absl::Status& status);
  absl::Status Verify(const std::string& identity) const;
  absl::Status MayProbeLocked() const;
  void BeginEchoLocked(std::unique_ptr<kernels::Link> link);
  absl::StatusOr<std::unique_ptr<kernels::Link>> Await(int member, v1::LinkKind kind,
                                                       double wait_seconds,
                                                       const std::function<bool()>& cancelled);
  absl::StatusOr<std::unique_ptr<kernels::Link>> Dial(const v1::ConfigureRequest& request, int self,
                                                      int member, v1::LinkKind kind,
                                                      const FormationTimes& times,
                                                      const JoinWatch& watch);
  absl::StatusOr<std::unique_ptr<kernels::Link>> DialOnce(const std::string& address,
                                                          const v1::LinkIdentity& identity,
                                                          double timeout_seconds) const;

  const LinkHubOptions options_;
  std::unique_ptr<kernels::LinkServer> server_;
  LogThrottle refusals_{std::chrono::seconds(1)};  // lines about them

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Joining* joining_ = nullptr;
  std::shared_ptr<kernels::Link> echoed_;  // of the probe that this worker echoes; null: none
  std::thread echo_thread_;
  int64_t refused_ = 0;
  std::map<Counted, std::shared_ptr<kernels::LinkTally>> tallies_;
};

}  // namespace tessera::worker

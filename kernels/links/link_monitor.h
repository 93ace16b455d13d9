// Whether peers are alive: one thread that sends pings to all of them and listens for theirs.
//
// Each pair of processes has a heartbeat link for it, which carries nothing else; both sides watch
// it. Pings come from this thread alone, so a long computation is not taken for a hang, while a
// stopped process is. A peer that is silent for timeout_seconds (DEADLINE_EXCEEDED) or that closes
// its heartbeat (UNAVAILABLE) is lost: its links are shut down with that error, which names it.
//
// Thread rule: any thread, but on_lost must not call the monitor.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/links/deadline.h"
#include "kernels/links/file_descriptor.h"
#include "kernels/links/link.h"

namespace tessera::kernels {

class LinkMonitor {
 public:
  struct Options {
    double ping_interval_seconds = 0.5;
    // Silence of this length is a loss; several intervals.
    double timeout_seconds = 5;
  };

  // RESOURCE_EXHAUSTED: no thread, no descriptor.
  static absl::StatusOr<std::unique_ptr<LinkMonitor>> Start(const Options& options);
  ~LinkMonitor();
  LinkMonitor(const LinkMonitor&) = delete;
  LinkMonitor& operator=(const LinkMonitor&) = delete;

  // Watches the peer behind `heartbeat`; with it, `links` end. `on_lost`, if any, is called once,
  // on the monitor's thread.
  void Watch(std::shared_ptr<Link> heartbeat, std::vector<std::shared_ptr<Link>> links,
             std::function<void(const absl::Status&)> on_lost = {});

 private:
  struct Peer {
    std::shared_ptr<Link> heartbeat;
    std::vector<std::shared_ptr<Link>> links;
    std::function<void(const absl::Status&)> on_lost;
    Deadline silent_until;
  };

  LinkMonitor(const Options& options, FileDescriptor wake)
      : options_(options), wake_(std::move(wake)) {}
  void Loop();
  // Waits for pings until `deadline`; returns the heartbeats that can be read.
  std::vector<std::shared_ptr<Link>> WaitForPings(Deadline deadline);
  void Hear(const std::vector<std::shared_ptr<Link>>& readable);
  void SendPings();
  void EndLost();

  const Options options_;
  const FileDescriptor wake_;  // an eventfd
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<Peer> peers_;
  std::thread thread_;
};

}  // namespace tessera::kernels

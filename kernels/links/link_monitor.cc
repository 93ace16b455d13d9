#include "kernels/links/link_monitor.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels {

absl::StatusOr<std::unique_ptr<LinkMonitor>> LinkMonitor::Start(const Options& options) {
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return absl::ResourceExhaustedError("link monitor: no eventfd");
  std::unique_ptr<LinkMonitor> monitor(new LinkMonitor(options, std::move(wake)));
  try {
    monitor->thread_ = std::thread([m = monitor.get()] { m->Loop(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        StrCat("link monitor: cannot start its thread: ", error.what()));
  }
  return monitor;
}

LinkMonitor::~LinkMonitor() {
  stop_.store(true);
  eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

void LinkMonitor::Watch(std::shared_ptr<Link> heartbeat, std::vector<std::shared_ptr<Link>> links,
                        std::function<void(const absl::Status&)> on_lost) {
  const std::lock_guard lock(mutex_);
  peers_.push_back({.heartbeat = std::move(heartbeat),
                    .links = std::move(links),
                    .on_lost = std::move(on_lost),
                    .silent_until = DeadlineAfter(options_.timeout_seconds)});
  eventfd_write(wake_.get(), 1);
}

void LinkMonitor::Loop() {
  Deadline next_pings = DeadlineAfter(0);
  while (!stop_.load()) {
    // Pings that are there are read before anybody is found silent: this process may have been the
    // one that was stopped.
    Hear(WaitForPings(next_pings));
    EndLost();
    if (std::chrono::steady_clock::now() < next_pings) continue;
    SendPings();
    next_pings = DeadlineAfter(options_.ping_interval_seconds);
  }
}

std::vector<std::shared_ptr<Link>> LinkMonitor::WaitForPings(Deadline deadline) {
  std::vector<std::shared_ptr<Link>> heartbeats;
  {
    const std::lock_guard lock(mutex_);
    for (const Peer& peer : peers_) {
      heartbeats.push_back(peer.heartbeat);
      deadline = std::min(deadline, peer.silent_until);
    }
  }
  std::vector<pollfd> waited = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  for (const auto& heartbeat : heartbeats) {
    waited.push_back({.fd = heartbeat->socket(), .events = POLLIN, .revents = 0});
  }
  if (poll(waited.data(), waited.size(), MillisecondsUntil(deadline)) <= 0) return {};
  eventfd_t ignored = 0;
  if (waited[0].revents != 0) eventfd_read(wake_.get(), &ignored);
  std::vector<std::shared_ptr<Link>> readable;
  for (size_t i = 0; i < heartbeats.size(); ++i) {
    if (waited[i + 1].revents != 0) readable.push_back(std::move(heartbeats[i]));
  }
  return readable;
}

void LinkMonitor::Hear(const std::vector<std::shared_ptr<Link>>& readable) {
  for (const auto& heartbeat : readable) {
    std::string nothing;
    // A ping that is cut in two is waited for, in a fraction of the time of a loss.
    const absl::StatusOr<uint16_t> type =
        heartbeat->ReceiveAny(0, &nothing, options_.timeout_seconds / 8);
    if (!type.ok()) continue;  // EndLost sees the link's status
    const std::lock_guard lock(mutex_);
    for (Peer& peer : peers_) {
      if (peer.heartbeat != heartbeat) continue;
      peer.silent_until = DeadlineAfter(options_.timeout_seconds);
    }
  }
}

void LinkMonitor::SendPings() {
  const std::lock_guard lock(mutex_);
  for (const Peer& peer : peers_) {
    // A peer that reads no pings sends none either, and is found by its silence.
    peer.heartbeat->Send(kPingFrame, absl::Span<const std::byte>(), 0).IgnoreError();
  }
}

void LinkMonitor::EndLost() {
  const std::lock_guard lock(mutex_);
  const Deadline now = std::chrono::steady_clock::now();
  std::erase_if(peers_, [&](const Peer& peer) {
    absl::Status lost = peer.heartbeat->status();
    if (lost.ok() && now >= peer.silent_until) {
      lost = absl::DeadlineExceededError(StrCat("link to ", peer.heartbeat->peer(), ": silent for ",
                                                options_.timeout_seconds, " s"));
    }
    if (lost.ok()) return false;
    peer.heartbeat->Shutdown(lost);
    for (const auto& link : peer.links) link->Shutdown(lost);
    if (peer.on_lost) peer.on_lost(lost);
    return true;
  });
}

}  // namespace tessera::kernels

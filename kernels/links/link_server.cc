#include "kernels/links/link_server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/links/link_address.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

// Below the ids of connections: the eventfd that stops the server, then its listeners.
constexpr uint64_t kStopId = 0, kFirstListenerId = 1, kFirstPendingId = uint64_t{1} << 32;
// Connections taken from one listener before handshakes go on.
constexpr int kAcceptsPerTurn = 64;
// After a connection that could not be taken, for want of descriptors, say.
constexpr std::chrono::milliseconds kPauseAfterFailure(20);

std::string HostOf(const Link& link) {
  const std::string& peer = link.peer();
  return link.is_unix() ? peer : peer.substr(0, peer.rfind(':'));
}

}  // namespace

LinkServer::Pending::Pending(std::unique_ptr<Link> connection, const HandshakeOptions& options)
    : link(std::move(connection)),
      handshake(*link, options),
      host(HostOf(*link)),
      may_be_put_out(DeadlineAfter(kSpeakSeconds)),
      deadline(DeadlineAfter(options.timeout_seconds)) {}

absl::StatusOr<std::unique_ptr<LinkServer>> LinkServer::Start(LinkServerOptions options) {
  std::unique_ptr<LinkServer> server(new LinkServer(std::move(options)));
  server->epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  server->stop_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->epoll_.valid() || !server->stop_.valid()) {
    return absl::ResourceExhaustedError(
        StrCat("no descriptor to wait for links: ", std::strerror(errno)));
  }
  absl::Status status = server->Watch(server->stop_.get(), EPOLLIN, kStopId);
  for (const std::string& text : server->options_.listen) {
    const auto address = ParseLinkAddress(text);
    if (!address.ok()) return address.status();
    auto listener = LinkListener::Listen(*address, server->options_.tls);
    if (!listener.ok()) return listener.status();
    const uint64_t id = kFirstListenerId + server->listeners_.size();
    status.Update(server->Watch((*listener)->socket(), EPOLLIN, id));
    server->listeners_.push_back(*std::move(listener));
  }
  if (!status.ok()) return status;
  server->next_id_ = kFirstPendingId;
  server->thread_ = std::thread([raw = server.get()] { raw->Serve(); });
  return server;
}

std::vector<std::string> LinkServer::addresses() const {
  std::vector<std::string> texts;
  for (const auto& listener : listeners_) texts.push_back(listener->address().ToString());
  return texts;
}

void LinkServer::Stop() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

absl::Status LinkServer::Watch(int socket, uint32_t events, uint64_t id) const {
  epoll_event event = {.events = events, .data = {.u64 = id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("epoll_ctl: ", std::strerror(errno)));
}

void LinkServer::Serve() {
  while (ServeEvents()) EndLate();
  pending_.clear();
}

bool LinkServer::ServeEvents() {
  std::array<epoll_event, 64> events;
  // All have the same time, so the oldest ends first.
  const int wait = pending_.empty() ? -1 : MillisecondsUntil(pending_.begin()->second->deadline);
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait);
  const auto ready = absl::MakeSpan(events).first(static_cast<size_t>(std::max(count, 0)));
  // Those that have spoken go before new ones, which may put out who has not.
  for (const epoll_event& event : ready) {
    if (event.data.u64 == kStopId) return false;
    if (event.data.u64 >= kFirstPendingId) Advance(event.data.u64);
  }
  for (const epoll_event& event : ready) {
    if (event.data.u64 < kFirstPendingId) Accept(*listeners_[event.data.u64 - kFirstListenerId]);
  }
  return true;
}

void LinkServer::Accept(LinkListener& listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    absl::StatusOr<std::unique_ptr<Link>> link = listener.Accept(0);
    if (absl::IsDeadlineExceeded(link.status())) return;
    if (!link.ok()) {
      if (options_.on_refused) options_.on_refused(link.status());
      return std::this_thread::sleep_for(kPauseAfterFailure);
    }
    auto pending = std::make_unique<Pending>(*std::move(link), options_.handshake);
    const bool room = MakeRoom(pending->host);
    const uint64_t id = next_id_++;
    const int socket = pending->link->socket();
    const auto added = pending_.emplace(id, std::move(pending)).first;
    if (!room) {
      Refuse(added, absl::ResourceExhaustedError("too many connections begin at once"));
      continue;
    }
    // Only news of it: a frame of which a part came must not wake this thread over and over.
    const absl::Status watched = Watch(socket, EPOLLIN | EPOLLRDHUP | EPOLLET, id);
    if (!watched.ok()) Refuse(added, watched);
  }
}

bool LinkServer::MakeRoom(const std::string& host) {
  const auto of_host = std::count_if(pending_.begin(), pending_.end(),
                                     [&](const auto& entry) { return entry.second->host == host; });
  const bool host_full = static_cast<size_t>(of_host) >= options_.max_handshakes_per_peer;
  if (!host_full && pending_.size() < options_.max_handshakes) return true;
  const Deadline now = std::chrono::steady_clock::now();
  auto victim = pending_.end();
  for (auto it = pending_.begin(); it != pending_.end(); ++it) {
    const Pending& pending = *it->second;
    if (pending.expected || pending.may_be_put_out > now) continue;
    if (host_full && pending.host != host) continue;
    const bool silent = pending.handshake.claimed_identity() == nullptr;
    if (victim == pending_.end() || silent) victim = it;
    if (silent) break;
  }
  if (victim == pending_.end()) return false;
  Refuse(victim, absl::ResourceExhaustedError("it held up others that want to connect"));
  return true;
}

void LinkServer::Advance(uint64_t id) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;  // an event behind its end
  Pending& pending = *found->second;
  std::optional<absl::StatusOr<std::string>> outcome = pending.handshake.Advance();
  if (!outcome.has_value()) {
    const std::string* const claimed = pending.handshake.claimed_identity();
    if (claimed != nullptr && options_.expects) pending.expected = options_.expects(*claimed);
    return;
  }
  AcceptedLink accepted = {.link = std::move(pending.link), .identity = {}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, accepted.link->socket(), nullptr);
  pending_.erase(found);
  if (!outcome->ok()) {
    if (options_.on_refused) options_.on_refused(outcome->status());
    return;
  }
  accepted.identity = **std::move(outcome);
  options_.on_link(std::move(accepted));
}

void LinkServer::EndLate() {
  const Deadline now = std::chrono::steady_clock::now();
  while (!pending_.empty() && pending_.begin()->second->deadline <= now) {
    Refuse(pending_.begin(), absl::DeadlineExceededError("its handshake was not over in time"));
  }
}

void LinkServer::Refuse(PendingMap::iterator pending, const absl::Status& reason) {
  const std::unique_ptr<Link> link = std::move(pending->second->link);
  pending_.erase(pending);
  if (!options_.on_refused) return;
  options_.on_refused(absl::Status(
      reason.code(), StrCat("link to ", link->peer(), ": refused: ", StdView(reason.message()))));
}

}  // namespace tessera::kernels

#include "worker/formation/link_hub.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "kernels/links/handshake.h"
#include "kernels/links/link_address.h"
#include "kernels/links/link_socket.h"
#include "proto/protocol.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/formation/link_probe.h"
#include "worker/weights/start_thread.h"

namespace tessera::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kHandshakeSeconds = 5;
constexpr double kProbeDialSeconds = 0.8;  // for one address, connecting and handshake
constexpr std::chrono::milliseconds kRedial(50);
constexpr std::chrono::milliseconds kLookAgain(200);

std::string Text(const absl::Status& status) { return std::string(StdView(status.message())); }

// At least 0.
template <class TimePoint>
double SecondsUntil(TimePoint deadline) {
  return std::max(std::chrono::duration<double>(deadline - Clock::now()).count(), 0.0);
}

bool Contains(const std::vector<int>& members, int member) {
  return std::find(members.begin(), members.end(), member) != members.end();
}

// Another member that no link reaches: said once it has lasted, and again when it is over.
class Unreached {
 public:
  Unreached(std::string member, double after_seconds,
            const std::function<void(const std::string&)>& blocked)
      : member_(std::move(member)), after_seconds_(after_seconds), blocked_(blocked) {}
  ~Unreached() { Say(""); }
  Unreached(const Unreached&) = delete;
  Unreached& operator=(const Unreached&) = delete;

  // `failures` of all its addresses; empty: it answers.
  void Note(const std::string& failures) {
    if (failures.empty()) {
      since_ = Clock::now();
      return Say("");
    }
    if (Clock::now() - since_ < std::chrono::duration<double>(after_seconds_)) return;
    Say(StrCat("cannot reach ", member_, ": ", failures,
               ": let this machine through to its --link-port (a firewall?), or name an address "
               "that it answers at with --advertise-link there"));
  }

 private:
  void Say(std::string text) {
    if (text == said_) return;
    said_ = std::move(text);
    if (!said_.empty()) Logger("worker").warn("{}", said_);
    if (blocked_) blocked_(said_);
  }

  const std::string member_;
  const double after_seconds_;
  const std::function<void(const std::string&)> blocked_;
  Clock::time_point since_ = Clock::now();
  std::string said_;
};

absl::Status CheckVersion(const v1::LinkIdentity& peer) {
  if (peer.protocol_version() == kProtocolVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("the link's other end speaks protocol version ",
                                              peer.protocol_version(), ", this worker ",
                                              kProtocolVersion));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkHub>> LinkHub::Start(LinkHubOptions options) {
  std::unique_ptr<LinkHub> hub(new LinkHub(std::move(options)));
  LinkHub* raw = hub.get();
  v1::LinkIdentity identity;
  identity.set_protocol_version(kProtocolVersion);
  identity.set_incarnation(hub->options_.incarnation);
  kernels::HandshakeOptions handshake;
  handshake.token = hub->options_.cluster_token;
  handshake.identity = identity.SerializeAsString();
  handshake.verify = [raw](std::string_view peer) { return raw->Verify(std::string(peer)); };
  handshake.timeout_seconds = kHandshakeSeconds;
  auto server = kernels::LinkServer::Start(
      {.listen = hub->options_.listen,
       .handshake = std::move(handshake),
       .tls = hub->options_.tls,
       .expects = [raw](std::string_view peer) { return raw->Verify(std::string(peer)).ok(); },
       .on_link = [raw](kernels::AcceptedLink accepted) { raw->Take(std::move(accepted)); },
       .on_refused = [raw](const absl::Status& status) { raw->NoteRefused(status); }});
  if (!server.ok()) return server.status();
  hub->server_ = *std::move(server);
  return hub;
}

LinkHub::~LinkHub() {
  if (server_ != nullptr) server_->Stop();
  {
    std::lock_guard lock(mutex_);
    if (echoed_ != nullptr) echoed_->Shutdown(absl::CancelledError("the worker is shutting down"));
  }
  if (echo_thread_.joinable()) echo_thread_.join();
}

void LinkHub::NoteRefused(const absl::Status& status) {
  // It asks again, or went away.
  if (absl::IsAborted(status) || absl::IsUnavailable(status)) return;
  {
    std::lock_guard lock(mutex_);
    ++refused_;
  }
  const std::optional<int64_t> left_out = refusals_.Pass(Clock::now());
  if (!left_out.has_value()) return;
  Logger("worker").warn("a link was refused: {} ({} more since the last such line)", Text(status),
                        *left_out);
}

void LinkHub::CountLocked(kernels::Link* link, v1::LinkKind kind, uint64_t peer_incarnation) {
  auto& tally = tallies_[{kind, link->is_unix(), peer_incarnation}];
  if (tally == nullptr) tally = std::make_shared<kernels::LinkTally>();
  link->CountInto(tally);
}

v1::WorkerCounters LinkHub::counters() {
  std::lock_guard lock(mutex_);
  std::vector<Counted> closed;
  for (const auto& [counted, tally] : tallies_) {
    if (counted.peer_incarnation != 0 && tally.use_count() == 1) closed.push_back(counted);
  }
  for (Counted counted : closed) {
    const kernels::LinkCounters sum = tallies_.extract(counted).mapped()->Read();
    counted.peer_incarnation = 0;
    auto& all = tallies_[counted];
    if (all == nullptr) all = std::make_shared<kernels::LinkTally>();
    all->Add(sum);
  }
  v1::WorkerCounters counters;
  counters.set_links_refused(refused_);
  for (const auto& [counted, tally] : tallies_) {
    const kernels::LinkCounters sum = tally->Read();
    v1::LinkCounters* links = counters.add_links();
    links->set_kind(counted.kind);
    links->set_transport(counted.is_unix ? "unix" : "tcp");
    links->set_peer_incarnation(counted.peer_incarnation);
    links->set_bytes_sent(sum.bytes_sent);
    links->set_bytes_received(sum.bytes_received);
    links->set_timed_bytes(sum.timed_bytes);
    links->set_timed_seconds(sum.timed_seconds);
  }
  return counters;
}

void LinkHub::Take(kernels::AcceptedLink accepted) {
  v1::LinkIdentity peer;
  peer.ParseFromString(accepted.identity);
  std::lock_guard lock(mutex_);
  const bool probe = peer.kind() == v1::LINK_KIND_PROBE;
  // What was true in Verify may have changed: then the link closes, and the dialer hears of it.
  if (probe ? !MayProbeLocked().ok() : joining_ == nullptr) return;
  CountLocked(accepted.link.get(), peer.kind(), peer.incarnation());
  if (probe) return BeginEchoLocked(std::move(accepted.link));
  joining_->arrived[{peer.member(), peer.kind()}] = std::move(accepted.link);
  changed_.notify_all();
}

absl::Status LinkHub::MayProbeLocked() const {
  if (joining_ != nullptr) {
    return absl::AbortedError("the worker is joining the others of its replica: measure it later");
  }
  if (echoed_ != nullptr) {
    return absl::AbortedError("the worker is being measured by another one: measure it later");
  }
  return absl::OkStatus();
}

void LinkHub::BeginEchoLocked(std::unique_ptr<kernels::Link> link) {
  if (echo_thread_.joinable()) echo_thread_.join();  // it has ended: echoed_ is null
  echoed_ = std::move(link);
  auto thread = StartThread("the thread that echoes", [this, link = echoed_] {
    if (absl::Status status = EchoProbe(*link, kProbeSeconds); !status.ok()) {
      Logger("worker").warn("while a link was measured: {}", Text(status));
    }
    std::lock_guard lock(mutex_);
    echoed_ = nullptr;
  });
  if (thread.ok()) {
    echo_thread_ = *std::move(thread);
  } else {
    Logger("worker").warn("a link is not measured: {}", Text(thread.status()));
    echoed_ = nullptr;
  }
}

absl::Status LinkHub::Verify(const std::string& identity) const {
  v1::LinkIdentity peer;
  if (!peer.ParseFromString(identity)) {
    return absl::InvalidArgumentError("the link's identity cannot be read");
  }
  if (absl::Status version = CheckVersion(peer); !version.ok()) return version;
  if (peer.peer_incarnation() != options_.incarnation) {
    return absl::FailedPreconditionError(
        "the link is meant for another process, not for this worker");
  }
  std::lock_guard lock(mutex_);
  if (peer.kind() == v1::LINK_KIND_PROBE) return MayProbeLocked();
  const uint64_t epoch = joining_ == nullptr ? 0 : joining_->request->fence().plan_epoch();
  if (epoch == 0 || epoch < peer.plan_epoch()) {
    return absl::AbortedError(
        StrCat("plan epoch ", peer.plan_epoch(), " has not started here yet"));
  }
  const v1::ConfigureRequest& request = *joining_->request;
  if (epoch != peer.plan_epoch() || peer.replica() != request.replica()) {
    return absl::FailedPreconditionError(StrCat("a link of replica ", peer.replica(),
                                                ", plan epoch ", peer.plan_epoch(), "; here ",
                                                request.replica(), " is joined at epoch ", epoch));
  }
  const FormationPlace& place = joining_->place;
  const bool bulk = peer.kind() == v1::LINK_KIND_BULK;
  const bool planned =
      (bulk || peer.kind() == v1::LINK_KIND_CONTROL || peer.kind() == v1::LINK_KIND_HEARTBEAT) &&
      peer.peer_member() == place.self && peer.member() > place.self &&
      Contains(bulk ? place.bulk : place.control, peer.member());
  if (!planned) {
    return absl::FailedPreconditionError(
        StrCat("the plan has no such link from member ", peer.member(), " to ", place.self));
  }
  if (request.peers(peer.member()).worker_incarnation() != peer.incarnation()) {
    return absl::FailedPreconditionError(
        StrCat(MemberName(request, peer.member()), " has restarted since the plan was made"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Formation>> LinkHub::Join(const v1::ConfigureRequest& request,
                                                         KvBlocks kv, const FormationTimes& times,
                                                         const JoinWatch& watch,
                                                         kernels::GroupMaker* maker) {
  auto place = PlaceOf(request);
  if (!place.ok()) return place.status();
  Joining joining{.request = &request, .place = *std::move(place), .arrived = {}};
  {
    std::lock_guard lock(mutex_);
    joining_ = &joining;
  }
  const int self = joining.place.self;
  const auto open = [&](int member, v1::LinkKind kind) {
    return member > self ? Await(member, kind, times.join_seconds, watch.cancelled)
                         : Dial(request, self, member, kind, times, watch);
  };
  auto formation = Formation::Join(request, kv, open, times, watch.cancelled, maker);
  std::lock_guard lock(mutex_);
  joining_ = nullptr;
  return formation;
}

absl::StatusOr<std::unique_ptr<kernels::Link>> LinkHub::Await(
    int member, v1::LinkKind kind, double wait_seconds, const std::function<bool()>& cancelled) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(wait_seconds);
  std::unique_lock lock(mutex_);
  while (Clock::now() < deadline) {
    const auto found = joining_->arrived.find({member, kind});
    if (found != joining_->arrived.end()) {
      auto link = std::move(found->second);
      joining_->arrived.erase(found);
      return link;
    }
    changed_.wait_for(lock, kLookAgain);
    lock.unlock();
    const bool gives_up = cancelled();
    lock.lock();
    if (gives_up) return absl::CancelledError("the Configure call was cancelled");
  }
  return absl::DeadlineExceededError(
      StrCat(MemberName(*joining_->request, member), " did not join within ", wait_seconds, " s"));
}

absl::StatusOr<std::unique_ptr<kernels::Link>> LinkHub::DialOnce(const std::string& address,
                                                                 const v1::LinkIdentity& identity,
                                                                 double timeout_seconds) const {
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_seconds);
  const auto parsed = kernels::ParseLinkAddress(address);
  if (!parsed.ok()) return parsed.status();
  auto link = kernels::ConnectLink(*parsed, timeout_seconds, options_.tls.get());
  if (!link.ok()) return link.status();
  kernels::HandshakeOptions handshake;
  handshake.token = options_.cluster_token;
  handshake.identity = identity.SerializeAsString();
  handshake.timeout_seconds = SecondsUntil(deadline);
  handshake.verify = [&identity](std::string_view text) {
    v1::LinkIdentity peer;
    if (!peer.ParseFromString(std::string(text))) {
      return absl::InvalidArgumentError("the link's identity cannot be read");
    }
    if (absl::Status version = CheckVersion(peer); !version.ok()) return version;
    if (peer.incarnation() == identity.peer_incarnation()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "the process that answers there is another one than is meant");
  };
  const auto peer = HandshakeAsClient(**link, handshake);
  if (!peer.ok()) return peer.status();
  return link;
}

absl::StatusOr<std::unique_ptr<kernels::Link>> LinkHub::Dial(const v1::ConfigureRequest& request,
                                                             int self, int member,
                                                             v1::LinkKind kind,
                                                             const FormationTimes& times,
                                                             const JoinWatch& watch) {
  const v1::Peer& peer = request.peers(member);
  v1::LinkIdentity identity;
  identity.set_protocol_version(kProtocolVersion);
  identity.set_plan_epoch(request.fence().plan_epoch());
  identity.set_replica(request.replica());
  identity.set_member(self);
  identity.set_incarnation(options_.incarnation);
  identity.set_peer_member(member);
  identity.set_peer_incarnation(peer.worker_incarnation());
  identity.set_kind(kind);
  absl::Status last = absl::UnavailableError("the worker has registered no address for links");
  Unreached unreached(MemberName(request, member), times.blocked_after_seconds, watch.blocked);
  const auto deadline = Clock::now() + std::chrono::duration<double>(times.join_seconds);
  while (Clock::now() < deadline) {
    std::string failures;
    for (const std::string& address : peer.link_addresses()) {
      auto link = DialOnce(address, identity, kHandshakeSeconds);
      if (link.ok()) {
        Logger("worker").info("link to {} over {}: {}", MemberName(request, member), address,
                              v1::LinkKind_Name(kind));
        std::lock_guard lock(mutex_);
        CountLocked(link->get(), kind, peer.worker_incarnation());
        return link;
      }
      last = link.status();
      // It is the right worker, which is not that far yet: a worse address would be no way around.
      if (absl::IsAborted(last)) break;
      // A Unix socket is on the other's machine, which need not be this one.
      if (!address.starts_with("unix:") || peer.link_addresses_size() == 1)
        failures += StrCat(failures.empty() ? "" : "; ", Text(last));
    }
    unreached.Note(absl::IsAborted(last) ? "" : failures);
    if (!absl::IsAborted(last) && !absl::IsUnavailable(last) && !absl::IsDeadlineExceeded(last)) {
      break;
    }
    if (watch.cancelled()) return absl::CancelledError("the Configure call was cancelled");
    std::this_thread::sleep_for(kRedial);
  }
  return absl::Status(last.code(),
                      StrCat("no link to ", MemberName(request, member), ": ", Text(last)));
}

absl::StatusOr<v1::ProbeLinkReply> LinkHub::Probe(const v1::ProbeLinkRequest& request) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(kProbeSeconds);
  {
    std::lock_guard lock(mutex_);
    if (joining_ != nullptr) return MayProbeLocked();
  }
  v1::LinkIdentity identity;
  identity.set_protocol_version(kProtocolVersion);
  identity.set_incarnation(options_.incarnation);
  identity.set_peer_incarnation(request.peer_incarnation());
  identity.set_kind(v1::LINK_KIND_PROBE);
  absl::Status last = absl::UnavailableError("it has registered no address for links");
  for (const std::string& address : request.link_addresses()) {
    auto link = DialOnce(address, identity, std::min(SecondsUntil(deadline), kProbeDialSeconds));
    if (link.ok()) {
      {
        std::lock_guard lock(mutex_);
        CountLocked(link->get(), v1::LINK_KIND_PROBE, request.peer_incarnation());
      }
      const auto rates = MeasureLink(**link, SecondsUntil(deadline));
      if (!rates.ok()) {
        last = rates.status();
        break;
      }
      v1::ProbeLinkReply reply;
      reply.set_transport((*link)->is_unix() ? "unix" : "tcp");
      reply.set_latency_seconds(rates->latency_seconds);
      reply.set_sent_bytes_per_second(rates->sent_bytes_per_second);
      reply.set_received_bytes_per_second(rates->received_bytes_per_second);
      return reply;
    }
    last = link.status();
    if (absl::IsAborted(last)) break;  // the right worker, which is busy
  }
  return absl::Status(last.code(), StrCat("no link to ", request.peer(), ": ", Text(last)));
}

}  // namespace tessera::worker

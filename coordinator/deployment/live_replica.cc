#include "coordinator/deployment/live_replica.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "third_party/spdlog/log.h"
#include "tls/grpc_credentials.h"

namespace tessera::coordinator {
namespace {

// Messages to a worker carry whole prompts, and a Configure the vocabulary.
constexpr int kMaxMessageBytes = 256 << 20;

std::shared_ptr<grpc::Channel> Connect(const std::string& address, const ClientTls& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // A silent peer is noticed by pings, not only by heartbeats.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  const auto credentials = ChannelTls(tls, &arguments);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

std::vector<std::shared_ptr<grpc::Channel>> ConnectAll(const LiveReplicaOptions& options) {
  const ClientTls tls = TlsNow(options.worker_tls);
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (const ReplicaMember& member : options.members)
    channels.push_back(Connect(member.address, tls));
  return channels;
}

std::string Describe(const v1::ConfigureProgress& progress) {
  std::string text = progress.phase();
  if (progress.bytes_total() > 0)
    absl::StrAppend(&text, " ", 100 * progress.bytes_done() / progress.bytes_total(), " %");
  return text;
}

uint64_t TermOf(const LiveReplicaOptions& options) {
  return options.leader_term ? options.leader_term() : 0;
}

// Where the call never came to the worker, what to do about it; gRPC names its library's parts.
absl::Status WithRemedy(const absl::Status& status, const std::string& address) {
  if (!absl::IsUnavailable(status)) return status;
  const absl::string_view text = status.message();
  for (const char* of_handshake : {"handshake failed", "check failed", "Socket closed"}) {
    if (text.find("failed to connect") == text.npos || text.find(of_handshake) == text.npos)
      continue;
    return absl::UnavailableError(absl::StrCat(
        "what answers at ", address, " does not take this coordinator's handshake (",
        std::string(text),
        "): give coordinator and worker --cluster-tls with files of one `tessera token create`, or "
        "neither, and name with the worker's --advertise an address that leads to it"));
  }
  for (const char* unreached :
       {"failed to connect", "DNS resolution", "C-ares", "Connection refused"}) {
    if (status.message().find(unreached) == absl::string_view::npos) continue;
    return absl::UnavailableError(absl::StrCat(
        "the coordinator cannot reach it at ", address, " (", std::string(status.message()),
        "): name an address that answers there with the worker's --advertise, or open the port of "
        "its --listen"));
  }
  return status;
}

// The member ended because another one did, or because its call was cancelled.
bool IsConsequence(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsCancelled(status);
}

}  // namespace

std::shared_ptr<LiveReplica> LiveReplica::Start(LiveReplicaOptions options, WorkerPool& pool,
                                                ReplicaLinkListener& flow) {
  std::shared_ptr<LiveReplica> live(new LiveReplica(std::move(options), pool, flow));
  live->Begin();
  return live;
}

LiveReplica::LiveReplica(LiveReplicaOptions options, WorkerPool& pool, ReplicaLinkListener& flow)
    : options_(std::move(options)),
      pool_(pool),
      flow_(flow),
      channels_(ConnectAll(options_)),
      configuring_(options_.members.size()),
      progress_(options_.members.size()),
      ready_(options_.members.size()) {}

void LiveReplica::Begin() {
  for (size_t i = 0; i < members().size(); ++i) {
    const ReplicaMember& member = members()[i];
    pool_.SetReplica(member.worker, options_.replica);
    pool_.SetState(member.worker, incarnation(i), v1::WORKER_STATE_CONFIGURING, "configuring");
    Logger("coordinator")
        .info("{} worker {} as replica {}{}, plan epoch {}",
              options_.takes_up ? "taking up" : "configuring", member.worker, options_.replica,
              alone() ? ""
                      : absl::StrCat(", stage ", member.request.stage(), ", rank ",
                                     member.request.rank()),
              epoch());
  }
  const std::shared_ptr<LiveReplica> self = shared_from_this();
  std::lock_guard lock(mutex_);  // no call ends before all have begun
  calls_ = notifications_ = static_cast<int>(members().size());
  for (size_t i = 0; i < members().size(); ++i) {
    ConfigureCall::Events events;
    events.progress = [self, i](const v1::ConfigureProgress& p) { self->OnProgress(i, p); };
    events.done = [self, i](const absl::Status& status, const v1::WorkerReady& ready) {
      self->OnConfigured(i, status, ready);
    };
    v1::ConfigureRequest& request = options_.members[i].request;
    configuring_[i] =
        ConfigureCall::Begin(channels_[i], request, options_.cluster_token, TermOf(options_),
                             options_.configure_timeout_seconds, std::move(events));
    request.clear_vocabulary();  // megabytes, which only the call needs
  }
}

void LiveReplica::OnProgress(size_t member, const v1::ConfigureProgress& progress) {
  bool moved = false;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::kConfiguring) return;
    Progress& last = progress_[member];
    moved = last.phase != progress.phase() || last.bytes_done != progress.bytes_done();
    last = {progress.phase(), progress.bytes_done()};
  }
  pool_.SetState(members()[member].worker, incarnation(member), v1::WORKER_STATE_CONFIGURING,
                 Describe(progress));
  if (moved && options_.progressed) options_.progressed();
}

void LiveReplica::OnConfigured(size_t member, const absl::Status& status,
                               const v1::WorkerReady& ready) {
  NoteConfigured(member, status, ready);
  CallEnded();
}

void LiveReplica::NoteConfigured(size_t member, const absl::Status& status,
                                 const v1::WorkerReady& ready) {
  std::vector<std::shared_ptr<ConfigureCall>> cancelled;
  bool all_ready = false, all_ended = false;
  {
    std::lock_guard lock(mutex_);
    configuring_[member] = nullptr;
    ready_[member] = ready;
    if (!status.ok()) {
      // After End there is nobody to blame.
      if (state_ == State::kConfiguring || !failures_.empty())
        failures_.push_back({member, WithRemedy(status, members()[member].address)});
      if (state_ == State::kConfiguring) cancelled = configuring_;
      state_ = State::kOver;
    }
    const auto ended = [](const std::shared_ptr<ConfigureCall>& call) { return call == nullptr; };
    all_ended = std::all_of(configuring_.begin(), configuring_.end(), ended);
    all_ready = all_ended && state_ == State::kConfiguring;
  }
  for (const std::shared_ptr<ConfigureCall>& call : cancelled) {
    if (call != nullptr) call->Cancel();
  }
  if (all_ready) PublishReady();
  if (all_ended && !all_ready) BlameFailures();
}

// The pool first: whoever sees READY finds all members ready there.
void LiveReplica::PublishReady() {
  for (size_t i = 0; i < members().size(); ++i) {
    Logger("coordinator")
        .info("worker {} is ready: {}, {} KV blocks of {} tokens", members()[i].worker,
              ready_[i].device(), ready_[i].kv_blocks(), ready_[i].block_tokens());
    pool_.SetReady(members()[i].worker, incarnation(i), epoch(), ready_[i]);
  }
  std::lock_guard lock(mutex_);
  if (state_ == State::kConfiguring) state_ = State::kReady;
}

// Names the member that failed first by itself, once every call has ended.
void LiveReplica::BlameFailures() {
  std::vector<Failure> failures;
  {
    std::lock_guard lock(mutex_);
    if (failures_.empty()) return;
    const bool all_consequences =
        std::all_of(failures_.begin(), failures_.end(),
                    [](const Failure& failure) { return IsConsequence(failure.status); });
    if (all_consequences) failures_.resize(1);
    std::erase_if(failures_, [&](const Failure& failure) {
      return !all_consequences && IsConsequence(failure.status);
    });
    failures = failures_;
    ending_.reason = failures[0].status;
    ending_.worker = members()[failures[0].member].worker;
    ending_.not_configured = !options_.takes_up;
    ending_.not_taken_up = options_.takes_up;
    ending_.seconds = options_.now_seconds();
  }
  if (options_.takes_up) {
    Logger("coordinator")
        .info("replica {} cannot be taken up as it is, so it is formed again: {}", options_.replica,
              std::string(failures[0].status.message()));
    return;
  }
  for (const Failure& failure : failures) {
    const std::string text(failure.status.message());
    Logger("coordinator")
        .error("worker {} could not be configured: {}", members()[failure.member].worker, text);
    pool_.SetState(members()[failure.member].worker, incarnation(failure.member),
                   v1::WORKER_STATE_FAILED, text);
  }
}

void LiveReplica::CallEnded() {
  {
    std::lock_guard lock(mutex_);
    --calls_;
  }
  options_.changed();
  std::lock_guard lock(mutex_);
  --notifications_;
  idle_.notify_all();
}

void LiveReplica::OpenSession() {
  std::lock_guard lock(mutex_);
  if (state_ != State::kReady) return;
  WorkerSessionOptions session;
  session.replica = options_.replica;
  session.fence = members()[0].request.fence();
  session.cluster_token = options_.cluster_token;
  session.leader_term = TermOf(options_);
  session.max_sequences = members()[0].request.max_sequences();
  session.ready = ready_[0];
  for (const v1::WorkerReady& ready : ready_)
    session.ready.set_kv_blocks(std::min(session.ready.kv_blocks(), ready.kv_blocks()));
  ++calls_;
  ++notifications_;
  state_ = State::kOpening;
  session_ = WorkerSession::Open(channels_[0], std::move(session), *this);
}

void LiveReplica::PassHeartbeat(const v1::EngineLoad& load, double heartbeat_seconds,
                                bool draining) {
  std::shared_ptr<WorkerSession> session;
  {
    std::lock_guard lock(mutex_);
    const bool news =
        heartbeat_seconds != passed_heartbeat_seconds_ || draining != passed_draining_;
    if (state_ != State::kServing || !news) return;
    passed_heartbeat_seconds_ = heartbeat_seconds;
    passed_draining_ = draining;
    session = session_;
  }
  v1::EngineLoad passed = load;
  if (draining) passed.set_draining(true);
  flow_.OnHeartbeat(session, passed);
}

void LiveReplica::End(const absl::Status& reason, const std::string& worker) {
  std::vector<std::shared_ptr<ConfigureCall>> configuring;
  std::shared_ptr<WorkerSession> session;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::kOver) return;
    state_ = State::kOver;
    ending_.reason = reason;
    ending_.worker = worker;
    ending_.seconds = options_.now_seconds();
    configuring = configuring_;
    session = session_;
  }
  for (const std::shared_ptr<ConfigureCall>& call : configuring) {
    if (call != nullptr) call->Cancel();
  }
  if (session != nullptr) session->Close(reason);
}

void LiveReplica::WaitQuiet() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return notifications_ == 0; });  // cancelled calls end at once
}

LiveReplica::State LiveReplica::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

bool LiveReplica::quiet() const {
  std::lock_guard lock(mutex_);
  return state_ == State::kOver && calls_ == 0;
}

LiveReplica::Ending LiveReplica::ending() const {
  std::lock_guard lock(mutex_);
  return ending_;
}

double LiveReplica::session_lost_seconds() const {
  std::lock_guard lock(mutex_);
  return session_lost_seconds_;
}

void LiveReplica::OnLinkReady(std::shared_ptr<ReplicaLink> link) {
  {
    std::lock_guard lock(mutex_);
    if (session_.get() == link.get() && state_ == State::kOpening) state_ = State::kServing;
  }
  flow_.OnLinkReady(std::move(link));
}

void LiveReplica::OnReply(const std::shared_ptr<ReplicaLink>& link, const v1::SessionReply& reply) {
  flow_.OnReply(link, reply);
  if (reply.has_load()) pool_.SetLoad(members()[0].worker, reply.load());
}

void LiveReplica::OnLinkLost(const std::shared_ptr<ReplicaLink>& link, const absl::Status& reason) {
  flow_.OnLinkLost(link, reason);
  bool unknown_plan = false, broken = false;
  {
    std::lock_guard lock(mutex_);
    session_ = nullptr;
    session_lost_seconds_ = options_.now_seconds();
    if (state_ != State::kOver) {
      // A leader alone that still serves this plan takes another session.
      unknown_plan = alone() && absl::IsFailedPrecondition(reason);
      broken = !alone();
      state_ = unknown_plan || broken ? State::kOver : State::kReady;
      if (state_ == State::kOver) {
        ending_.reason = reason;
        ending_.seconds = session_lost_seconds_;
      }
    }
  }
  const std::string text(reason.message());
  // It does not know this plan any more: configure it again.
  if (unknown_plan)
    pool_.SetState(members()[0].worker, incarnation(0), v1::WORKER_STATE_REGISTERED, text);
  if (broken) Logger("coordinator").warn("replica {} is broken: {}", options_.replica, text);
  CallEnded();
}

}  // namespace tessera::coordinator

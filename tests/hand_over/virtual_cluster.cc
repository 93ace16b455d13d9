#include "tests/hand_over/virtual_cluster.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "coordinator/flow/plan_pairs.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace tessera::tests {
namespace {

using worker::EngineCore;
using worker::KvKey;
using worker::ScriptedExecutor;

constexpr int64_t kBlockTokens = 4;
constexpr int64_t kVocabulary = 50;
constexpr double kReconnectSeconds = 1;

std::shared_ptr<const coordinator::Tokenizer> DemoTokenizer() {
  static const std::shared_ptr<const coordinator::Tokenizer> tokenizer =
      std::move(coordinator::Tokenizer::Load("deploy/demo_model/tessera-demo").value());
  return tokenizer;
}

worker::EngineOptions EngineOptionsOf(int64_t blocks) {
  worker::EngineOptions options;
  options.limits = {32, 8, 8, kBlockTokens, blocks};
  options.vocabulary = kVocabulary;
  options.max_model_len_tokens = 200;
  options.max_waiting = 1000;
  return options;
}

v1::DeploymentPlan PlanOf(const VirtualCluster::Options& options) {
  v1::DeploymentPlan plan;
  for (int p = 0; p < options.prefills; ++p) {
    for (int d = 0; d < options.decodes; ++d) {
      v1::RoutingShare& route = *plan.add_routing();
      route.set_prefill_replica("p" + std::to_string(p));
      route.set_decode_replica("d" + std::to_string(d));
      route.set_share(1.0 / (options.prefills * options.decodes));
      route.set_kv_codec("raw");
    }
  }
  return plan;
}

}  // namespace

// The coordinator's end of a session, and what is on its way in both directions.
class VirtualCluster::Session final : public coordinator::ReplicaLink {
 public:
  Session(VirtualCluster& cluster, int index, std::string replica, int64_t blocks)
      : cluster_(cluster), index_(index), replica_(std::move(replica)) {
    ready_.set_kv_blocks(static_cast<int32_t>(blocks));
    ready_.set_block_tokens(kBlockTokens);
    v1::KvShare& share = *ready_.add_kv_shares();
    share.mutable_layers()->set_end(1);
    share.mutable_kv_heads()->set_end(1);
  }
  const std::string& replica() const override { return replica_; }
  int64_t max_sequences() const override { return 8; }
  const v1::WorkerReady& ready() const override { return ready_; }
  bool Send(v1::SessionRequest request) override {
    if (closed) return false;
    if (request.has_reserve()) {
      const auto& ids = request.reserve().prompt_token_ids();
      cluster_.Reach(Phase::kReserve, index_, {ids.begin(), ids.end()});
      asked[request.reserve().submission_id()] = cluster_.now_;
    }
    if (request.has_cancel()) asked.erase(request.cancel().submission_id());
    down.push_back(std::move(request));
    return true;
  }
  bool FindKept(const v1::FindKeptRequest&, double, KeptFound) override { return false; }

  std::deque<v1::SessionRequest> down;
  std::deque<v1::SessionReply> up;
  std::map<uint64_t, double> asked;  // for room, by submission: when
  bool closed = false;

 private:
  VirtualCluster& cluster_;
  const int index_;
  const std::string replica_;
  v1::WorkerReady ready_;
};

struct VirtualCluster::Replica {
  int index = 0;
  std::string name;
  bool prefills = false;
  int64_t blocks = 0;

  // Of the process.
  bool alive = false;
  std::unique_ptr<ScriptedMover> mover;  // outlives the core
  ScriptedExecutor* workers = nullptr;
  std::unique_ptr<EngineCore> core;
  EngineCore::Events events;
  std::deque<std::function<void()>> mailbox;
  std::shared_ptr<Session> attached;
  std::map<KvKey, std::vector<int32_t>> prompts;  // of rooms
  double step_done = -1;

  // Of what happens to it.
  std::shared_ptr<Session> session;  // that the coordinator has; may be closed
  double paused_until = 0;
  double slow_until = 0;
  double factor = 1;
  double session_broken_until = 0;
  double session_stalled_until = 0;
  double silent_since = -1;
  double reconnect_at = 0;
};

class VirtualCluster::Sink final : public coordinator::GenerationSink {
 public:
  Sink(VirtualCluster& cluster, Client& client) : cluster_(cluster), client_(client) {}
  void OnPromptLogprobs(std::vector<coordinator::PositionChances>) override {}
  void OnChoice(coordinator::ChoiceEvent event) override {
    REQUIRE(client_.ends == 0);
    std::vector<int32_t>& tokens = client_.tokens[static_cast<size_t>(event.choice)];
    tokens.insert(tokens.end(), event.token_ids.begin(), event.token_ids.end());
    Note();
  }
  void OnEnd(const absl::Status& status, const coordinator::GenerationUsage&,
             const std::string&) override {
    ++client_.ends;
    client_.status = status;
    Note();
  }

 private:
  void Note() {
    client_.longest_gap_seconds =
        std::max(client_.longest_gap_seconds, cluster_.now_ - client_.since_seconds);
    client_.since_seconds = cluster_.now_;
  }
  VirtualCluster& cluster_;
  Client& client_;
};

VirtualCluster::VirtualCluster(const Options& options) : options_(options) {
  flow_ = MakeFlow();
  for (int i = 0; i < options.prefills + options.decodes; ++i) {
    Replica& replica = *replicas_.emplace_back(std::make_unique<Replica>());
    replica.index = i;
    replica.prefills = i < options.prefills;
    replica.name =
        replica.prefills ? "p" + std::to_string(i) : "d" + std::to_string(i - options.prefills);
    replica.blocks = replica.prefills ? options.prefill_blocks : options.decode_blocks;
    StartProcess(replica);
  }
  WatchMembers();
}

VirtualCluster::~VirtualCluster() {
  for (const auto& client : clients_) client->handle.reset();
}

std::unique_ptr<coordinator::RequestFlow> VirtualCluster::MakeFlow() {
  coordinator::RequestFlowOptions options;
  options.max_model_len_tokens = 200;
  options.recovery_timeout_seconds = kRecoverySeconds;
  options.now_seconds = [this] { return now_; };
  options.on_route = [this](auto loads, const auto&, const auto&) {
    loads_.assign(loads.begin(), loads.end());
  };
  auto flow = std::make_unique<coordinator::RequestFlow>(std::move(options), DemoTokenizer(),
                                                         /*metrics=*/nullptr);
  flow->SetPairs(coordinator::PlanPairs(PlanOf(options_)));
  return flow;
}

void VirtualCluster::StartProcess(Replica& replica) {
  const worker::EngineOptions options = EngineOptionsOf(replica.blocks);
  replica.mailbox.clear();
  replica.events.clear();
  replica.core.reset();
  ScriptedMover::Hooks hooks;
  hooks.now_seconds = [this] { return now_; };
  hooks.ticket = [this, &replica](const KvKey&) {
    return std::to_string(replica.index) + "/" + std::to_string(++tickets_);
  };
  hooks.expected = [&replica](const KvKey& key, const v1::KvTarget& target) {
    replica.mailbox.push_back([&replica, key, target] { replica.core->OnKvExpected(key, target); });
  };
  // The connection's end is seen at the other one.
  hooks.dropped = [this, &replica](const KvKey& key, const Shipment& shipment) {
    FailShipment(replica, key, shipment, absl::OkStatus(), now_ >= kv_stalled_until_);
  };
  replica.mover = std::make_unique<ScriptedMover>(std::move(hooks));
  auto workers =
      std::make_unique<ScriptedExecutor>(options_.lanes, replica.blocks, kBlockTokens, kVocabulary);
  replica.workers = workers.get();
  replica.core = std::make_unique<EngineCore>(options, std::move(workers));
  replica.core->SetMover(replica.mover.get());
  replica.attached.reset();
  replica.step_done = -1;
  replica.alive = true;
}

size_t VirtualCluster::Ask(int64_t prompt_tokens, int32_t max_tokens, int32_t choices) {
  Client& client = *clients_.emplace_back(std::make_unique<Client>());
  client.prompt_tokens = prompt_tokens;
  client.max_tokens = max_tokens;
  client.choices = choices;
  client.tokens.resize(static_cast<size_t>(choices));
  // Some begin alike.
  std::mt19937 alike(static_cast<uint32_t>(clients_.size() % 3));
  std::mt19937 own(static_cast<uint32_t>(1000 + clients_.size()));
  for (int64_t i = 0; i < prompt_tokens; ++i)
    client.prompt.push_back(static_cast<int32_t>((i < 9 ? alike() : own()) % kVocabulary));
  REQUIRE_FALSE(by_prompt_.contains(client.prompt));
  by_prompt_[client.prompt] = clients_.size() - 1;
  TryStart(client, clients_.size() - 1);
  return clients_.size() - 1;
}

void VirtualCluster::TryStart(Client& client, size_t index) {
  if (now_ < coordinator_back_) return;
  coordinator::GenerationRequest request;
  request.request_id = "request " + std::to_string(index);
  request.prompt_token_ids = client.prompt;
  request.max_tokens = client.max_tokens;
  request.choice_count = client.choices;
  request.ignore_eos = true;
  request.sampling.seed = 11;
  auto handle = flow_->Start(std::move(request), std::make_shared<Sink>(*this, client));
  client.accepted = handle.ok();
  client.since_seconds = now_;
  if (handle.ok()) client.handle = *std::move(handle);
}

void VirtualCluster::Cancel(size_t index) {
  Client& client = *clients_[index];
  if (client.ends > 0) return;
  client.cancelled = client.accepted = true;
  client.handle.reset();
}

std::vector<int32_t> VirtualCluster::Expected(const Client& client, int32_t choice,
                                              int64_t count) const {
  return replicas_[0]->workers->Expected(client.prompt, choice, count);
}

void VirtualCluster::Reach(Phase phase, int replica, const std::vector<int32_t>& prompt) {
  const size_t client = by_prompt_.at(prompt);
  if (phase == Phase::kReserve) clients_[client]->decode = replica;
  if (phase == Phase::kPrefill) clients_[client]->prefill = replica;
  if (on_phase) on_phase(phase, client);
}

// --- What goes wrong ---

void VirtualCluster::Kill(int index) {
  Replica& replica = *replicas_[static_cast<size_t>(index)];
  if (!replica.alive) return;
  replica.alive = false;
  replica.paused_until = 0;
  // Its connections break.
  std::map<KvKey, Shipment> shipments = std::move(replica.mover->shipments);
  replica.mover->shipments.clear();
  for (const auto& [key, shipment] : shipments)
    FailShipment(replica, key, shipment, absl::OkStatus(), now_ >= kv_stalled_until_);
  replica.mailbox.clear();
  EndSession(replica, "its process ended");
  At(now_ + kRestartSeconds, [this, &replica] { StartProcess(replica); });
}

void VirtualCluster::Pause(int replica, double seconds) {
  replicas_[static_cast<size_t>(replica)]->paused_until = now_ + seconds;
}
void VirtualCluster::Slow(int index, double factor, double seconds) {
  Replica& replica = *replicas_[static_cast<size_t>(index)];
  replica.factor = factor;
  replica.slow_until = now_ + seconds;
}
void VirtualCluster::BreakSession(int index, double seconds) {
  Replica& replica = *replicas_[static_cast<size_t>(index)];
  replica.session_broken_until = now_ + seconds;
  EndSession(replica, "the connection broke");
}
void VirtualCluster::StallSession(int replica, double seconds) {
  replicas_[static_cast<size_t>(replica)]->session_stalled_until = now_ + seconds;
}
void VirtualCluster::BreakKv(double seconds) { kv_broken_until_ = now_ + seconds; }
void VirtualCluster::StallKv(double seconds) { kv_stalled_until_ = now_ + seconds; }
void VirtualCluster::SlowKv(double factor, double seconds) {
  kv_factor_ = factor;
  kv_slow_until_ = now_ + seconds;
}

void VirtualCluster::RestartCoordinator() {
  for (const auto& replica : replicas_) {
    if (replica->session != nullptr) replica->session->closed = true;
    if (replica->alive && replica->attached != nullptr) {
      replica->mailbox.push_back([&replica = *replica] {
        replica.core->EndAll(absl::CancelledError("its session ended"), &replica.events);
        replica.attached.reset();
      });
    }
    replica->session.reset();
    replica->reconnect_at = now_ + kReconnectSeconds;
  }
  for (const auto& client : clients_) {
    if (!client->accepted || client->ends > 0 || client->cancelled) continue;
    client->lost = true;
    client->handle.reset();
  }
  coordinator_back_ = now_ + kReconnectSeconds;
  flow_ = MakeFlow();
}

void VirtualCluster::EndSession(Replica& replica, const std::string& reason) {
  const std::shared_ptr<Session> session = replica.session;
  if (session == nullptr || session->closed) return;
  session->closed = true;
  replica.reconnect_at = now_ + kReconnectSeconds;
  if (replica.alive) {
    // A stalled one is missed at the latest when the next session comes.
    replica.mailbox.push_back([&replica, session] {
      if (replica.attached != session) return;
      replica.core->EndAll(absl::CancelledError("its session ended"), &replica.events);
      replica.attached.reset();
    });
  }
  flow_->OnLinkLost(session, absl::UnavailableError(reason));
}

bool VirtualCluster::Answers(const Replica& replica) const {
  return replica.alive && now_ >= replica.paused_until && now_ >= replica.session_broken_until &&
         now_ >= replica.session_stalled_until;
}

void VirtualCluster::WatchMembers() {
  if (now_ < coordinator_back_) return;
  for (const auto& pointer : replicas_) {
    Replica& replica = *pointer;
    const bool open = replica.session != nullptr && !replica.session->closed;
    if (Answers(replica)) {
      replica.silent_since = -1;
    } else if (replica.silent_since < 0) {
      replica.silent_since = now_;
    }
    if (open && replica.silent_since >= 0 && now_ - replica.silent_since > kHeartbeatSeconds) {
      EndSession(replica, "its heartbeats stopped");
    } else if (!open && Answers(replica) && now_ >= replica.reconnect_at) {
      replica.session =
          std::make_shared<Session>(*this, replica.index, replica.name, replica.blocks);
      replica.mailbox.push_back([&replica, session = replica.session] {
        replica.core->EndAll(absl::CancelledError("its session ended"), &replica.events);
        replica.core->TakeReserved();
        replica.events.clear();
        replica.attached = session;
      });
      flow_->OnLinkReady(replica.session);
    }
  }
}

// --- What goes on ---

void VirtualCluster::Advance() {
  now_ += kTick;
  ++ticks_;
  while (!due_.empty() && due_.begin()->first <= now_) {
    const std::function<void()> what = std::move(due_.begin()->second);
    due_.erase(due_.begin());
    what();
  }
  WatchMembers();
  for (const auto& replica : replicas_) Deliver(*replica);
  for (const auto& replica : replicas_) Pump(*replica);
  for (const auto& replica : replicas_) MoveKv(*replica);
  for (const auto& replica : replicas_) EndLeases(*replica);
  if (ticks_ % 10 == 0) flow_->Tick();
  for (const auto& replica : replicas_) {  // nobody is waited for without end
    if (replica->session == nullptr || replica->session->closed) continue;
    for (const auto& [submission, since] : replica->session->asked)
      REQUIRE(now_ - since <= kRecoverySeconds + 0.2);
  }
  if (ticks_ % 10 == 0) {
    for (size_t i = 0; i < clients_.size(); ++i) {
      if (!clients_[i]->accepted) TryStart(*clients_[i], i);
    }
  }
}

void VirtualCluster::Deliver(Replica& replica) {
  const std::shared_ptr<Session> session = replica.session;
  if (session == nullptr || session->closed || now_ < replica.session_stalled_until) return;
  for (const v1::SessionRequest& message : std::exchange(session->down, {})) {
    replica.mailbox.push_back([this, &replica, session, message] {
      if (replica.attached == session) Apply(replica, message);
    });
  }
  for (const v1::SessionReply& reply : std::exchange(session->up, {})) {
    for (const v1::Reserved& answer : reply.reserved())
      session->asked.erase(answer.submission_id());
    if (!session->closed) flow_->OnReply(session, reply);
  }
}

void VirtualCluster::Apply(Replica& replica, const v1::SessionRequest& message) {
  if (message.has_submit()) {
    const v1::Submit& submit = message.submit();
    const std::vector<int32_t> prompt(submit.prompt_token_ids().begin(),
                                      submit.prompt_token_ids().end());
    if (submit.has_kv_target()) Reach(Phase::kPrefill, replica.index, prompt);
    if (!submit.kv_ticket().empty()) Reach(Phase::kDecode, replica.index, prompt);
    replica.core->Submit(submit, now_, &replica.events);
  } else if (message.has_cancel()) {
    replica.core->Cancel(message.cancel(), &replica.events);
  } else if (message.has_reserve()) {
    const v1::Reserve& reserve = message.reserve();
    replica.prompts[{reserve.submission_id(), reserve.attempt()}].assign(
        reserve.prompt_token_ids().begin(), reserve.prompt_token_ids().end());
    replica.core->Reserve(reserve);
  }
}

// As worker/engine/engine's loop.
void VirtualCluster::Pump(Replica& replica) {
  if (!replica.alive || now_ < replica.paused_until) return;
  while (!replica.mailbox.empty()) {
    const std::function<void()> what = std::move(replica.mailbox.front());
    replica.mailbox.pop_front();
    what();
  }
  EngineCore& core = *replica.core;
  if (core.MayBegin() && replica.attached != nullptr) core.BeginSteps(now_, &replica.events);
  if (replica.workers->waits() && replica.step_done < 0) {
    replica.step_done = now_ + kStepSeconds * (now_ < replica.slow_until ? replica.factor : 1);
  }
  if (replica.step_done >= 0 && now_ >= replica.step_done) {
    replica.step_done = -1;
    replica.workers->RunOldest();
    for (ScriptedExecutor::Pushed& piece : std::exchange(replica.workers->pushed, {})) {
      const auto shipment = replica.mover->shipments.find(piece.key);
      if (shipment != replica.mover->shipments.end())
        shipment->second.pieces.push_back(std::move(piece));
    }
  }
  if (core.StepReady()) core.EndStep([this] { return now_; }, &replica.events);
  if (replica.events.empty() && !core.has_reserved()) return;
  v1::SessionReply reply;
  *reply.mutable_load() = core.load();
  for (v1::TokenEvent& event : replica.events) *reply.add_events() = std::move(event);
  for (v1::Reserved& answer : core.TakeReserved()) *reply.add_reserved() = std::move(answer);
  replica.events.clear();
  if (replica.attached != nullptr) replica.attached->up.push_back(std::move(reply));
}

void VirtualCluster::MoveKv(Replica& sender) {
  if (!sender.alive || now_ < sender.paused_until) return;
  std::vector<KvKey> keys;
  for (const auto& [key, shipment] : sender.mover->shipments) keys.push_back(key);
  for (const KvKey& key : keys) {
    if (!MoveKvOf(sender, key, sender.mover->shipments.at(key))) sender.mover->shipments.erase(key);
  }
}

bool VirtualCluster::MoveKvOf(Replica& sender, const KvKey& key, Shipment& shipment) {
  const std::string& ticket = shipment.target.ticket();
  Replica& receiver = *replicas_[static_cast<size_t>(std::stoi(ticket))];
  if (now_ < kv_broken_until_ || !receiver.alive) {
    FailShipment(sender, key, shipment, absl::UnavailableError("the connection broke"), true);
    return false;
  }
  const bool wants = !shipment.pieces.empty() || shipment.arrived_seconds >= 0;
  if (!wants) shipment.progress_seconds = now_;
  if (now_ < kv_stalled_until_ || now_ < receiver.paused_until) {
    if (now_ - shipment.progress_seconds <= kPieceSeconds) return true;
    FailShipment(sender, key, shipment, absl::DeadlineExceededError("the peer takes nothing"),
                 now_ >= kv_stalled_until_);
    return false;
  }
  if (shipment.arrived_seconds >= 0) {
    v1::KvTransfer transfer;
    transfer.set_bytes(1);
    transfer.set_seconds(shipment.arrived_seconds - shipment.began_seconds + kTick);
    transfer.set_transport("scripted");
    sender.mailbox.push_back([this, &sender, key, transfer] {
      sender.core->OnKvSent(key, absl::OkStatus(), transfer, now_, &sender.events);
    });
    return false;
  }
  const auto room = std::find_if(receiver.mover->rooms.begin(), receiver.mover->rooms.end(),
                                 [&](const auto& entry) { return entry.second.ticket == ticket; });
  if (room == receiver.mover->rooms.end() || room->second.failed) {
    FailShipment(sender, key, shipment, absl::FailedPreconditionError("the ticket is not known"),
                 false);
    return false;
  }
  MovePieces(sender, receiver, room->first, shipment);
  return true;
}

void VirtualCluster::MovePieces(const Replica& sender, Replica& receiver, const KvKey& at,
                                Shipment& shipment) {
  shipment.connected = true;
  ScriptedMover::Room& room = receiver.mover->rooms.at(at);
  const worker::KvPlace& place = room.place;
  if (shipment.pieces.empty()) return;
  shipment.budget_tokens += kKvTokensPerSecond * kTick * (now_ < kv_slow_until_ ? kv_factor_ : 1);
  for (; shipment.budget_tokens >= 1 && !shipment.pieces.empty(); --shipment.budget_tokens) {
    ScriptedExecutor::Pushed& piece = shipment.pieces.front();
    REQUIRE(piece.first == shipment.moved);
    if (piece.first == place.first) Reach(Phase::kPush, receiver.index, receiver.prompts.at(at));
    receiver.workers->CopyKv(*sender.workers, piece.blocks, place.blocks, piece.first,
                             piece.first + 1);
    shipment.moved = ++piece.first;
    shipment.progress_seconds = now_;
    room.until_seconds = now_ + room.lease_seconds;
    if (piece.first == piece.end) shipment.pieces.pop_front();
  }
  if (shipment.moved < place.end) return;
  Reach(Phase::kJoin, receiver.index, receiver.prompts.at(at));
  ++hand_overs_;
  shipment.arrived_seconds = now_;
  receiver.mailbox.push_back([&receiver, at] { receiver.core->OnKvArrived(at, absl::OkStatus()); });
  receiver.mover->rooms.erase(at);
}

void VirtualCluster::FailShipment(Replica& sender, const KvKey& key, const Shipment& shipment,
                                  const absl::Status& status, bool receiver_hears) {
  if (!status.ok()) {
    ++failed_hand_overs_;
    sender.mailbox.push_back([this, &sender, key, status] {
      sender.core->OnKvSent(key, status, {}, now_, &sender.events);
    });
  }
  if (!receiver_hears || !shipment.connected) return;
  Replica& receiver = *replicas_[static_cast<size_t>(std::stoi(shipment.target.ticket()))];
  if (!receiver.alive) return;
  for (auto& [at, room] : receiver.mover->rooms) {
    if (room.ticket != shipment.target.ticket() || room.failed) continue;
    room.failed = true;
    receiver.mailbox.push_back([&receiver, at = at] {
      receiver.core->OnKvArrived(at, absl::UnavailableError("the connection broke"));
    });
  }
}

void VirtualCluster::EndLeases(Replica& receiver) {
  if (!receiver.alive || now_ < receiver.paused_until) return;
  for (auto& [at, room] : receiver.mover->rooms) {
    if (room.failed || now_ < room.until_seconds) continue;
    room.failed = true;
    receiver.mailbox.push_back([&receiver, at = at] {
      receiver.core->OnKvArrived(at, absl::DeadlineExceededError("the lease ended"));
    });
  }
}

// --- What is left ---

bool VirtualCluster::Idle() const {
  const bool all_end = std::all_of(clients_.begin(), clients_.end(), [](const auto& client) {
    return client->ends > 0 || client->cancelled || client->lost;
  });
  return all_end && due_.empty() &&
         std::all_of(replicas_.begin(), replicas_.end(), [&](const auto& replica) {
           return Answers(*replica) && replica->mailbox.empty() && replica->session != nullptr &&
                  !replica->session->closed && replica->session->down.empty() &&
                  replica->session->up.empty() && replica->core->sequences() == 0 &&
                  !replica->workers->waits() && !replica->core->StepReady();
         });
}

void VirtualCluster::CheckNothingHeld() {
  CHECK(flow_->requests_in_flight() == 0);
  for (const coordinator::ReplicaActivity& activity : flow_->activity()) {
    CHECK(activity.running_sequences == 0);
    CHECK(activity.prefilling_sequences == 0);
    CHECK(activity.queued_prompt_tokens == 0);
    CHECK(flow_->WorkOf(activity.replica) == 0);
  }
  for (const auto& replica : replicas_) {
    INFO("replica " << replica->name);
    CHECK(replica->core->sequences() == 0);
    CHECK(replica->core->load().kv_blocks_used() == 0);
    CHECK(replica->core->load().kv_blocks_total() == replica->blocks);
    CHECK(replica->mover->rooms.empty());
    CHECK(replica->mover->shipments.empty());
  }
  // What the router sees when one more is asked for.
  Cancel(Ask(30, 1, 1));
  for (const scheduler::ReplicaLoad& load : loads_) {
    CHECK(load.running_sequences == 0);
    CHECK(load.queued_prompt_tokens == 0);
    CHECK(load.outstanding_output_tokens == 0);
  }
}

}  // namespace tessera::tests

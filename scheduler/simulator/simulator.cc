#include "scheduler/simulator/simulator.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "scheduler/simulator/hop_sharing.h"
#include "scheduler/simulator/transfers.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMomentsPerAsking = 1024;  // whether to stop

// A request between two replicas.
struct Handover {
  int64_t reserved_blocks = 0;     // at the decode replica; 0: not yet
  int64_t decode_incarnation = 0;  // of the decode replica that was chosen
  int64_t prefill_incarnation = 0;
  int64_t kept_blocks = 0;  // at the prefill replica
};

class Simulation : public ReplicaListener {
 public:
  Simulation(const SimulationSetup& setup, Dispatcher* dispatcher)
      : setup_(setup),
        dispatcher_(*dispatcher),
        transfers_(setup.transfers, setup.replicas.size()) {
    const std::vector<SimulatedRequest>& all = setup.requests;
    const bool known = setup.source == nullptr && !all.empty();
    if (known && all.back().arrival_seconds > all.front().arrival_seconds)
      coming_until_ = all.back().arrival_seconds;
    result_.requests = setup.requests;
    result_.outcomes.resize(setup.requests.size());
    handovers_.resize(setup.requests.size());
    for (const ReplicaSetup& replica : setup.replicas) AddReplica(replica);
    for (const ScheduledChange& change : setup.changes) AddChange(change);
    initial_requests_ = setup.requests.size();
    if (setup.sample_seconds > 0) Push({0, Event::Kind::kSample, 0});
  }

  absl::StatusOr<SimulationResult> Run() {
    if (absl::Status s = CheckSetup(setup_); !s.ok()) return s;
    if (absl::Status s = hops_.Start(setup_.transfers, replicas_); !s.ok()) return s;
    for (int64_t moments = 0;; ++moments) {
      const double now = NextMoment();
      if (now == kInfinity) break;
      if (setup_.stop && moments % kMomentsPerAsking == 0 && setup_.stop())
        return absl::CancelledError("the simulation was stopped");
      now_ = now;
      do {
        after_ends_ = false;
        BeforeSteps();
        EndSteps();
        ShareLinks(false);
      } while (NextMoment() == now_);
      StartSteps();
      ShareLinks(true);
      if (!broken_.ok()) return broken_;
    }
    if (absl::Status s = CheckEnd(); !s.ok()) return s;
    result_.end_seconds = now_;
    result_.coming_until_seconds = std::min(now_, coming_until_);
    for (const auto& replica : replicas_) {
      result_.replicas.push_back(replica->setup());
      result_.counters.push_back(replica->counters());
    }
    result_.links = transfers_.network().links();
    result_.link_bytes = transfers_.network().carried_bytes();
    for (size_t r = 0; r < setup_.replicas.size(); ++r) {
      const ReplicaSetup& replica = setup_.replicas[r];
      const double bytes =
          static_cast<double>(result_.counters[r].rows) * replica.hop_bytes_per_row;
      for (const std::vector<int>& hop : replica.hop_links) {
        for (const int link : hop) result_.link_bytes[static_cast<size_t>(link)] += bytes;
      }
    }
    return std::move(result_);
  }

  // ReplicaListener; what follows from a call waits until the replica's own call is over.
  void OnStarted(int /*replica*/, const SimulatedSequence& sequence, double now,
                 double step_end) override {
    RequestOutcome& outcome = Outcome(sequence.request);
    if (outcome.started_seconds < 0) outcome.started_seconds = now;
    if (!sequence.keep_blocks) return;
    transfers_.PrefillStarted(sequence.request, outcome.prefill_replica, outcome.decode_replica,
                              sequence.known_tokens, now, step_end);
  }
  void OnFirstToken(int /*replica*/, const SimulatedSequence& sequence, double now) override {
    RequestOutcome& outcome = Outcome(sequence.request);
    if (outcome.first_token_seconds < 0) outcome.first_token_seconds = now;
  }
  void OnFinished(int replica, const SimulatedSequence& sequence, double /*now*/) override {
    ended_.push_back({replica, sequence});
    roomier_.push_back(replica);
  }
  void OnPreempted(int replica, const SimulatedSequence& sequence, double /*now*/) override {
    roomier_.push_back(replica);
    ++Outcome(sequence.request).preemptions;
  }
  void OnNeverFits(int replica, const SimulatedSequence& sequence, double /*now*/) override {
    roomier_.push_back(replica);
    refused_.push_back(sequence);
  }
  void OnJoined(int replica) override { roomier_.push_back(replica); }
  void OnToken(int replica, const SimulatedSequence& sequence, double now) override {
    setup_.tokens->OnToken(replica, sequence.request, now);
  }

 private:
  struct Event {
    enum class Kind { kChange, kArrival, kExpiry, kSample, kFirstTokenDue, kLastTokenDue };
    double seconds;
    Kind kind;
    int64_t index;  // of the change, request
    int64_t order = 0;
    bool operator>(const Event& other) const {
      return std::tie(seconds, order) > std::tie(other.seconds, other.order);
    }
  };
  struct Ended {
    int replica;
    SimulatedSequence sequence;
  };

  RequestOutcome& Outcome(int32_t request) {
    return result_.outcomes[static_cast<size_t>(request)];
  }
  const SimulatedRequest& Request(int32_t request) const {
    return result_.requests[static_cast<size_t>(request)];
  }
  SimulatedReplica& Replica(int replica) { return *replicas_[static_cast<size_t>(replica)]; }

  // Where requests stand, for messages.
  std::string Queues() const {
    std::string out = StrCat("; ", reserving_, " requests wait for room at a decode replica");
    for (const auto& replica : replicas_) {
      out += StrCat("; ", replica->setup().name, ": ", replica->running_sequences(), " running, ",
                    replica->waiting_sequences(), " waiting, ", replica->free_blocks(), " of ",
                    replica->setup().limits.total_blocks, " blocks free");
    }
    return out;
  }

  absl::Status CheckEnd() const {
    for (size_t i = 0; i < result_.requests.size(); ++i) {
      const RequestOutcome& outcome = result_.outcomes[i];
      const bool whole = outcome.output_tokens == result_.requests[i].output_tokens;
      if (outcome.fate == Fate::kOpen || (outcome.fate == Fate::kFinished && !whole)) {
        return absl::InternalError(StrCat("request ", i,
                                          " is unaccounted for: ", outcome.output_tokens, " of ",
                                          result_.requests[i].output_tokens, " tokens", Queues()));
      }
    }
    for (const auto& replica : replicas_) {
      if (!replica->ready()) continue;
      if (absl::Status s = replica->CheckInvariants(); !s.ok()) return s;
      if (replica->free_blocks() != replica->setup().limits.total_blocks) {
        return absl::InternalError(StrCat(replica->setup().name, ": ", replica->free_blocks(),
                                          " blocks are free when nothing runs, of ",
                                          replica->setup().limits.total_blocks));
      }
    }
    return absl::OkStatus();
  }

  // --- Time ---

  double NextMoment() {
    double next = *std::min_element(ends_.begin(), ends_.end());
    if (next_request_ < initial_requests_)
      next = std::min(next, result_.requests[next_request_].arrival_seconds);
    if (!events_.empty()) next = std::min(next, events_.top().seconds);
    return std::min(next, transfers_.next_event_seconds());
  }

  void Push(Event event) {
    event.order = ++event_order_;
    events_.push(event);
  }

  void BeforeSteps() {
    while (!events_.empty() && events_.top().seconds <= now_) {
      const Event event = events_.top();
      events_.pop();
      switch (event.kind) {
        case Event::Kind::kChange: Apply(changes_[static_cast<size_t>(event.index)]); break;
        case Event::Kind::kArrival: Place(static_cast<int32_t>(event.index)); break;
        case Event::Kind::kExpiry: Expire(static_cast<int32_t>(event.index)); break;
        case Event::Kind::kSample: Sample(); break;
        case Event::Kind::kFirstTokenDue:
        case Event::Kind::kLastTokenDue: Due(event.kind, static_cast<int32_t>(event.index)); break;
      }
    }
    for (const int32_t request : transfers_.Arrived(now_)) FinishHandover(request);
    while (next_request_ < initial_requests_ &&
           result_.requests[next_request_].arrival_seconds <= now_) {
      Place(static_cast<int32_t>(next_request_++));
    }
    Settle();
  }

  void EndSteps() {
    for (size_t r = 0; r < replicas_.size(); ++r) {
      if (ends_[r] > now_) continue;
      replicas_[r]->EndSteps();
      Touch(static_cast<int>(r));
    }
    after_ends_ = true;
    Settle();
  }

  void StartSteps() {
    while (!touched_.empty()) {
      starting_.swap(touched_);
      std::sort(starting_.begin(), starting_.end());
      for (const int r : starting_) is_touched_[static_cast<size_t>(r)] = false;
      for (const int r : starting_) {
        SimulatedReplica& replica = Replica(r);
        replica.Start(now_);
        ends_[static_cast<size_t>(r)] = replica.next_end_seconds();
        if (setup_.check_invariants && broken_.ok() && replica.ready())
          broken_ = replica.CheckInvariants();
      }
      starting_.clear();
      Settle();
    }
  }

  void ShareLinks(bool started) {
    if (!hops_.Update(now_, started, &transfers_.network(), replicas_)) return;
    for (size_t r = 0; r < replicas_.size(); ++r) ends_[r] = replicas_[r]->next_end_seconds();
  }

  void Touch(int replica) {
    ends_[static_cast<size_t>(replica)] = Replica(replica).next_end_seconds();
    if (is_touched_[static_cast<size_t>(replica)]) return;
    is_touched_[static_cast<size_t>(replica)] = true;
    touched_.push_back(replica);
  }

  // What followed from the replicas' calls.
  void Settle() {
    do {
      const std::vector<Ended> ended = std::exchange(ended_, {});
      const std::vector<SimulatedSequence> refused = std::exchange(refused_, {});
      for (const Ended& e : ended) EndPart(e.replica, e.sequence);
      for (const SimulatedSequence& s : refused) {
        Emitted(s);
        if (s.keep_blocks) LeaveDecode(s.request, Unspent(s.request) - 1);
        Again(s.request);
      }
      // Room is looked for when some was given back, at no other moment: leaps have fewer of them.
      const std::vector<int> roomier = std::exchange(roomier_, {});
      for (const int r : roomier) GrantReservations(r);
    } while (!ended_.empty() || !refused_.empty() || !roomier_.empty());
  }

  // --- Requests ---

  // A sequence's tokens are the request's.
  void Emitted(const SimulatedSequence& sequence) {
    Outcome(sequence.request).output_tokens =
        sequence.known_tokens - Request(sequence.request).prompt_tokens;
  }

  // Just after: what comes at the limit is in time.
  void ExpectBy(double limit_seconds, Event::Kind kind, int32_t request) {
    if (limit_seconds <= 0) return;
    Push({std::nextafter(now_ + limit_seconds, kInfinity), kind, request});
  }

  // A limit has passed.
  void Due(Event::Kind kind, int32_t request) {
    RequestOutcome& outcome = Outcome(request);
    const bool first = kind == Event::Kind::kFirstTokenDue;
    if (outcome.fate != Fate::kOpen || (first && outcome.first_token_seconds >= 0)) return;
    (first ? outcome.first_token_missed_seconds : outcome.last_token_missed_seconds) = now_;
    for (const int replica : {outcome.prefill_replica, outcome.decode_replica}) {
      if (replica < 0) continue;
      Replica(replica).StopLeaps(now_);
      ends_[static_cast<size_t>(replica)] = Replica(replica).next_end_seconds();
    }
    AskForPlan();
  }

  void Place(int32_t request) {
    const auto request_class = static_cast<size_t>(Request(request).request_class);
    if (Outcome(request).attempts == 0 && request_class < setup_.limits.size()) {
      const TokenLimits& limits = setup_.limits[request_class];
      ExpectBy(limits.first_seconds, Event::Kind::kFirstTokenDue, request);
      ExpectBy(limits.last_seconds, Event::Kind::kLastTokenDue, request);
    }
    loads_.clear();
    for (const auto& replica : replicas_) loads_.push_back(replica->LoadAt(now_, after_ends_));
    SimulatedRequest& placed = result_.requests[static_cast<size_t>(request)];
    RequestOutcome& outcome = Outcome(request);
    placed.rank = dispatcher_.Rank(placed, now_);
    placed.attempts = outcome.attempts;
    placed.emitted_tokens = outcome.output_tokens;
    const Route route = dispatcher_.Choose(loads_, placed, now_);
    if (route.prefill_replica < 0) {
      if (outcome.attempts == 0) return End(request, Fate::kFailed);
      const double deadline = now_ + setup_.recovery_timeout_seconds;
      orphans_.emplace(request, deadline);
      Push({deadline, Event::Kind::kExpiry, request});
      return;
    }
    ++outcome.attempts;
    outcome.prefill_replica = route.prefill_replica;
    outcome.decode_replica = route.decode_replica;
    const int64_t left = Request(request).output_tokens - outcome.output_tokens;
    if (route.prefill_replica == route.decode_replica || left == 1) {
      SubmitPart(request, left, false);
      return;
    }
    Handover& handover = handovers_[static_cast<size_t>(request)];
    SimulatedReplica& decode = Replica(route.decode_replica);
    handover = {0, decode.incarnation(), Replica(route.prefill_replica).incarnation(), 0};
    decode.Expect(Unspent(request) - 1);
    reservations_[static_cast<size_t>(route.decode_replica)].push_back(request);
    ++reserving_;
    GrantReservations(route.decode_replica);
  }

  int64_t Unspent(int32_t request) {
    return std::max(Request(request).asked_tokens(), Request(request).output_tokens) -
           Outcome(request).output_tokens;
  }

  // To the replica that computes the prompt, for `tokens` tokens.
  void SubmitPart(int32_t request, int64_t tokens, bool keep_blocks) {
    const SimulatedRequest& r = Request(request);
    RequestOutcome& outcome = Outcome(request);
    SimulatedSequence sequence;
    sequence.request = request;
    sequence.rank = r.rank;
    sequence.order = ++submissions_;
    sequence.known_tokens = r.prompt_tokens + outcome.output_tokens;
    sequence.cached_tokens = r.cached_prompt_tokens;
    sequence.left_tokens = tokens;
    sequence.unspent_tokens = keep_blocks ? tokens : Unspent(request);
    sequence.keep_blocks = keep_blocks;
    Replica(outcome.prefill_replica).Submit(std::move(sequence), now_);
    Touch(outcome.prefill_replica);
  }

  // In the order of asking; a reservation that does not fit lets none overtake it.
  void GrantReservations(int replica) {
    std::deque<int32_t>& queue = reservations_[static_cast<size_t>(replica)];
    SimulatedReplica& decode = Replica(replica);
    while (!queue.empty()) {
      const int32_t request = queue.front();
      const BatchLimits& limits = decode.setup().limits;
      const int64_t tokens = Request(request).prompt_tokens + Outcome(request).output_tokens + 1;
      const int64_t blocks = BlocksFor(tokens, limits.block_tokens);
      Handover& handover = handovers_[static_cast<size_t>(request)];
      const bool hopeless =
          blocks > limits.total_blocks ||
          Replica(Outcome(request).prefill_replica).incarnation() != handover.prefill_incarnation;
      if (!hopeless && !decode.Reserve(blocks, now_)) return;
      queue.pop_front();
      --reserving_;
      Touch(replica);
      if (hopeless) {
        decode.Unexpect(Unspent(request) - 1);
        Again(request);
        continue;
      }
      handover.reserved_blocks = blocks;
      SubmitPart(request, 1, true);
    }
  }

  // Its prefill replica is gone: gives back what it holds at its decode replica, and the tokens
  // that were expected there.
  void LeaveDecode(int32_t request, int64_t unspent) {
    transfers_.Drop(request, now_);
    Handover& handover = handovers_[static_cast<size_t>(request)];
    const int index = Outcome(request).decode_replica;
    SimulatedReplica& decode = Replica(index);
    if (decode.incarnation() == handover.decode_incarnation) {
      decode.Unexpect(unspent);
      if (handover.reserved_blocks > 0) decode.Unreserve(handover.reserved_blocks, now_);
      roomier_.push_back(index);
      Touch(index);
    }
    handover.reserved_blocks = 0;
  }

  // A sequence has emitted all it was submitted for.
  void EndPart(int replica, const SimulatedSequence& sequence) {
    const int32_t request = sequence.request;
    Emitted(sequence);
    if (Outcome(request).output_tokens >= Request(request).output_tokens)
      return End(request, Fate::kFinished);
    Handover& handover = handovers_[static_cast<size_t>(request)];
    handover.kept_blocks =
        BlocksFor(sequence.computed_tokens, Replica(replica).setup().limits.block_tokens);
    const RequestOutcome& outcome = Outcome(request);
    if (Replica(outcome.decode_replica).incarnation() != handover.decode_incarnation) {
      transfers_.Drop(request, now_);
      return FinishHandover(request);
    }
    transfers_.PrefillEnded(request, replica, outcome.decode_replica, sequence.computed_tokens,
                            now_);
  }

  // The KV has arrived, or its receiver is gone.
  void FinishHandover(int32_t request) {
    const RequestOutcome& outcome = Outcome(request);
    Handover& handover = handovers_[static_cast<size_t>(request)];
    SimulatedReplica& prefill = Replica(outcome.prefill_replica);
    SimulatedReplica& decode = Replica(outcome.decode_replica);
    if (prefill.incarnation() == handover.prefill_incarnation) {
      prefill.Release(handover.kept_blocks, now_);
      Touch(outcome.prefill_replica);
    }
    if (decode.incarnation() != handover.decode_incarnation) return Again(request);
    SimulatedSequence sequence;
    sequence.request = request;
    sequence.rank = Request(request).rank;
    sequence.order = ++submissions_;
    sequence.known_tokens = Request(request).prompt_tokens + outcome.output_tokens;
    sequence.computed_tokens = sequence.known_tokens - 1;
    sequence.prompt_tokens = sequence.known_tokens;
    sequence.left_tokens = Request(request).output_tokens - outcome.output_tokens;
    sequence.unspent_tokens = Unspent(request);
    sequence.started_seconds = outcome.started_seconds;
    sequence.last_token_seconds = outcome.first_token_seconds;
    decode.Join(std::move(sequence), handover.reserved_blocks, now_);
    handover.reserved_blocks = 0;
    roomier_.push_back(outcome.decode_replica);  // a block less may be held than was reserved
    Touch(outcome.decode_replica);
  }

  // Its replica is gone or refused it: another goes on.
  void Again(int32_t request) {
    if (Outcome(request).attempts >= setup_.max_attempts) return End(request, Fate::kFailed);
    Place(request);
  }

  void Expire(int32_t request) {
    const auto at = orphans_.find(request);
    if (at == orphans_.end() || at->second > now_) return;
    orphans_.erase(at);
    End(request, Fate::kFailed);
  }

  void End(int32_t request, Fate fate) {
    RequestOutcome& outcome = Outcome(request);
    outcome.fate = fate;
    outcome.finished_seconds = now_;
    if (setup_.source == nullptr) return;
    std::vector<SimulatedRequest> arrivals;
    setup_.source->OnEnd(request, Request(request), outcome, &arrivals);
    for (SimulatedRequest& arrival : arrivals) {
      arrival.arrival_seconds = std::max(arrival.arrival_seconds, now_);
      Push({arrival.arrival_seconds, Event::Kind::kArrival,
            static_cast<int64_t>(result_.requests.size())});
      result_.requests.push_back(arrival);
      result_.outcomes.emplace_back();
      handovers_.emplace_back();
    }
  }

  // --- Changes ---

  void AddReplica(const ReplicaSetup& setup) {
    const int index = static_cast<int>(replicas_.size());
    SteppingOptions stepping;
    stepping.leaps = setup_.leaps;
    stepping.wants_tokens = setup_.tokens != nullptr;
    stepping.coming_until_seconds = coming_until_;
    replicas_.push_back(std::make_unique<SimulatedReplica>(index, setup, stepping, this));
    ends_.push_back(kInfinity);
    is_touched_.push_back(false);
    reservations_.emplace_back();
  }

  void AddChange(const ScheduledChange& change) {
    Push({std::max(change.at_seconds, now_), Event::Kind::kChange,
          static_cast<int64_t>(changes_.size())});
    changes_.push_back(change);
  }

  void Apply(const ScheduledChange& change) {
    switch (change.kind) {
      case ScheduledChange::Kind::kLose: Lose(change.replica); break;
      case ScheduledChange::Kind::kRecover:
        if (!Replica(change.replica).ready()) Replica(change.replica).Recover();
        PlaceOrphans();
        break;
      case ScheduledChange::Kind::kSlow:
        Replica(change.replica).SetSlowdown(change.factor, now_);
        Touch(change.replica);
        break;
      case ScheduledChange::Kind::kAdd:
        AddReplica(*change.added);
        PlaceOrphans();
        break;
    }
    AskForPlan();
  }

  void AskForPlan() {
    if (!setup_.replan) return;
    loads_.clear();
    for (const auto& replica : replicas_) loads_.push_back(replica->LoadAt(now_, after_ends_));
    for (const ScheduledChange& more : setup_.replan(now_, loads_)) AddChange(more);
  }

  void Lose(int replica) {
    if (!Replica(replica).ready()) return;
    std::vector<SimulatedSequence> lost = Replica(replica).Lose(now_);
    Touch(replica);
    std::sort(lost.begin(), lost.end(),
              [](const auto& a, const auto& b) { return a.request < b.request; });
    std::deque<int32_t> waiting = std::exchange(reservations_[static_cast<size_t>(replica)], {});
    for (const SimulatedSequence& s : lost) {
      Emitted(s);
      if (s.keep_blocks) LeaveDecode(s.request, Unspent(s.request) - 1);
      Again(s.request);
    }
    for (const int32_t request : transfers_.Underway()) {
      if (Outcome(request).decode_replica == replica) {
        transfers_.Drop(request, now_);
        FinishHandover(request);
      } else if (Outcome(request).prefill_replica == replica) {
        LeaveDecode(request, Unspent(request));
        Again(request);
      }
    }
    reserving_ -= static_cast<int64_t>(waiting.size());
    for (const int32_t request : waiting) Again(request);
  }

  void PlaceOrphans() {
    const std::map<int32_t, double> orphans = std::exchange(orphans_, {});
    for (const auto& [request, deadline] : orphans) Place(request);
  }

  void Sample() {
    for (size_t r = 0; r < replicas_.size(); ++r) {
      SimulatedReplica& replica = *replicas_[r];
      const double blocks = static_cast<double>(replica.setup().limits.total_blocks);
      // One that is lost has no KV, whatever stood in it: it begins again when it is back.
      const double used = replica.ready() ? static_cast<double>(replica.used_blocks(now_)) : 0;
      result_.samples.push_back({now_, static_cast<int>(r), replica.running_sequences(),
                                 replica.waiting_sequences(), used / blocks});
    }
    const bool more = next_request_ < initial_requests_ || !events_.empty() ||
                      *std::min_element(ends_.begin(), ends_.end()) < kInfinity;
    if (more) Push({now_ + setup_.sample_seconds, Event::Kind::kSample, 0});
  }

  const SimulationSetup& setup_;
  Dispatcher& dispatcher_;
  SimulationResult result_;
  std::vector<std::unique_ptr<SimulatedReplica>> replicas_;
  std::vector<double> ends_;  // next_end_seconds of each replica
  std::vector<bool> is_touched_;
  std::vector<int> touched_, starting_;
  std::vector<std::deque<int32_t>> reservations_;  // by decode replica: who waits for room
  std::vector<Handover> handovers_;                // by request
  std::vector<ReplicaLoad> loads_;
  std::vector<Ended> ended_;
  std::vector<SimulatedSequence> refused_;
  Transfers transfers_;
  HopSharing hops_;
  std::vector<int> roomier_;           // replicas that gave back blocks or places
  std::map<int32_t, double> orphans_;  // without a replica, until when
  int64_t reserving_ = 0;              // who wait for room, all replicas
  std::vector<ScheduledChange> changes_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  size_t next_request_ = 0, initial_requests_ = 0;
  int64_t event_order_ = 0, submissions_ = 0;
  double now_ = 0;
  double coming_until_ = kInfinity;  // the last arrival, where it is known
  bool after_ends_ = false;          // the steps that end now have been ended
  absl::Status broken_;
};

}  // namespace

absl::StatusOr<SimulationResult> Simulate(const SimulationSetup& setup, Dispatcher* dispatcher) {
  return Simulation(setup, dispatcher).Run();
}

}  // namespace tessera::scheduler

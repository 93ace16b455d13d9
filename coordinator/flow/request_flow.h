// START READING HERE: one request from arrival to its last token.
//
//   Start -> router picks a replica -> Submit to its leader -> one TokenEvent per step and choice
//   comes back
//         -> LiveGeneration makes text of it -> the front door's sink
//
// Where the plan has replicas that only prefill (hand_over.cc): room for the KV is asked for at the
// decode replica, the prompt goes to the prefill replica, which answers with the first token and
// sends the KV, and the choice goes on at the decode replica. What goes wrong on the way is a
// replica that lost its work: the choice goes on elsewhere, from its tokens.
//
// A replica that is lost, or that hands its work back, loses nothing: prompt and emitted tokens are
// kept here, and each open choice goes on at another replica where it stopped (same seed, so
// sampled streams go on too). Where no replica is ready the choices wait for one, up to
// recovery_timeout_seconds, and so do new requests where a replica that has served is coming back.
//
// A replica that has become slow (scheduler/slowdown.h) is routed by its usual rates over its
// slowdown; where it has nothing to do it gets one request now and then, to be measured by.
//
// A replica that drains, or refuses work as UNAVAILABLE, gets nothing more until it says otherwise.
// Work that a replica refused goes to the others first. A request whose first submission meets full
// queues everywhere is refused RESOURCE_EXHAUSTED; one that a replica had taken waits for room.
//
// Choices of a request that go together are a Part:
// clang-format off
//   WAITING -> ASKING, RUNNING   (a replica is there; where another is to decode: has that room?)
//   ASKING  -> RUNNING, WAITING  (it has; it has none, or is lost)
//   RUNNING -> RUNNING, WAITING  (its KV is where it goes on; refused, failed, lost)
//   any     -> forgotten         (its choices have ended, failed, or are cancelled)
// clang-format on
//
// Thread rule: thread-safe. Every wait is bounded by Tick, which the owner calls about ten times a
// second.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/flow/generation.h"
#include "coordinator/flow/live_generation.h"
#include "coordinator/flow/plan_pairs.h"
#include "coordinator/flow/replica_link.h"
#include "coordinator/flow/request_metrics.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "scheduler/router.h"

namespace tessera::coordinator {

struct RequestFlowOptions {
  int64_t max_model_len_tokens = 0;      // prompt and output of one choice
  int64_t max_requests = 16384;          // in flight; one more is refused RESOURCE_EXHAUSTED
  int32_t max_attempts = 4;              // failures of one choice before its error is told
  double recovery_timeout_seconds = 30;  // how long open choices wait for a replica after a loss
  // From its start until a replica begins its prompt; then it ends with UNAVAILABLE. What a replica
  // had taken before, and lost, has no such limit. 0: none.
  double queue_timeout_seconds = 0;
  std::function<bool()> recovering;  // a replica is coming back: they wait on; may be empty
  // Another plan is being put in force: where no replica is ready new requests wait as open choices
  // do, instead of being refused; may be empty.
  std::function<bool()> changing_plan;
  double refused_retry_seconds = 0.25;  // before those are asked again that had no room
  double slow_probe_seconds = 30;       // an idle slow replica gets a request so often
  std::vector<int32_t> eos_token_ids;   // of the model: where kept tokens have ended
  // Workers may still know submissions of a coordinator before this one.
  uint64_t first_submission_id = 1;
  std::function<double()> now_seconds;  // monotonic
  // Sees every decision of the router, with what it was made of; may be empty. With the flow's lock
  // held.
  std::function<void(std::span<const scheduler::ReplicaLoad>, const scheduler::RouteRequest&,
                     const scheduler::Route&)>
      on_route;
};

// What the router knows and status pages show of one replica.
struct ReplicaActivity {
  std::string replica;
  bool ready = false;  // takes requests
  int64_t running_sequences = 0;
  int64_t prefilling_sequences = 0;  // of the running ones: no event yet
  int64_t queued_prompt_tokens = 0;
  uint64_t messages = 0;      // from its leader since its link became ready
  int64_t prompt_tokens = 0;  // since its link became ready
  int64_t generation_tokens = 0;
};

class RequestFlow : public GenerationService,
                    public ReplicaLinkListener,
                    public std::enable_shared_from_this<RequestFlow> {
 public:
  // `metrics` may be null. Make it with std::make_shared: handles keep it alive.
  RequestFlow(RequestFlowOptions options, std::shared_ptr<const Tokenizer> tokenizer,
              RequestMetrics* metrics);

  absl::StatusOr<std::unique_ptr<GenerationHandle>> Start(
      GenerationRequest request, std::shared_ptr<GenerationSink> sink) override;

  void OnLinkReady(std::shared_ptr<ReplicaLink> link) override;
  void OnReply(const std::shared_ptr<ReplicaLink>& link, const v1::SessionReply& reply) override;
  void OnHeartbeat(const std::shared_ptr<ReplicaLink>& link, const v1::EngineLoad& load) override;
  void OnLinkLost(const std::shared_ptr<ReplicaLink>& link, const absl::Status& reason) override;

  // Tells the metrics how many sequences run and wait now, for a page of metrics to be written.
  void CountSequences() const;
  // Places what waits for a replica where one is ready, and gives up on what has waited too long.
  void Tick();
  // Those of a plan; none: requests go by load alone. The same as those that hold change nothing.
  void SetPairs(PlanPairs pairs);
  // No new generations from now on (UNAVAILABLE, "draining").
  void Drain();
  bool draining() const;
  // Ends everything that is left.
  void AbortAll(const absl::Status& reason);

  // The link of each replica that is there.
  std::vector<std::shared_ptr<ReplicaLink>> links() const;
  // Since the newest of them became ready; infinity: none did; 0: others are about to.
  double SecondsSinceReady() const;

  int64_t requests_in_flight() const;
  int ready_replicas() const;
  std::vector<ReplicaActivity> activity() const;
  // What a request of so many tokens takes once the fastest replica has begun it, as far as that
  // was measured; 0: nothing was.
  double ExpectedSeconds(double prompt_tokens, double answer_tokens) const;
  // By replica, above 1: those that have become slow (scheduler/slowdown.h). Call it often: the
  // rates of the others are remembered as their usual ones.
  void SetSlowdowns(const std::map<std::string, double>& slowdowns);
  // One record for each pair that the plan has.
  std::vector<HandOverRecord> hand_overs() const;
  // Submissions that the replica has not ended, and those that it has room for or is asked for
  // room.
  int64_t WorkOf(const std::string& replica) const;

 private:
  friend class FlowHandle;

  // What a part has been through.
  struct RetryState {
    std::vector<std::string> refused_by;  // replicas; since its last token
    int32_t failures = 0;                 // losses and errors; a refusal is none
    bool taken = false;                   // by a replica, once: it is waited for, not refused
    bool late = false;                    // it was not begun in time for its deadline
    double deadline_seconds = 0;          // of its waiting since its last token; 0: it did not wait
  };
  // Room for the KV of a part, at the replica that will decode it.
  struct Room {
    std::shared_ptr<ReplicaLink> link;
    uint64_t submission_id = 0;  // of what goes on there
    uint32_t attempt = 1;
    v1::KvTarget target;
    // What will decode there: the router counts it from the choice of the pair on.
    int64_t sequences = 0;
    int64_t output_tokens = 0;
  };
  // Choices of one request that go together; states as above.
  struct Part {
    enum class State { kWaiting, kAsking, kRunning };
    State state = State::kWaiting;
    std::shared_ptr<LiveGeneration> generation;
    uint32_t attempt = 1;
    RetryState retry;
    // RUNNING: of the replica that computes it; ASKING: of the one that will prefill; WAITING: of
    // the one that had it last, null where none has.
    std::shared_ptr<ReplicaLink> link;
    std::optional<Room> room;  // where its KV goes; of ASKING without a target yet

    // WAITING:
    std::vector<OpenChoice> choices;
    double not_before_seconds = 0;  // of its next placement; 0: when a replica is ready
    absl::Status reason;
    bool refused = false;    // the last replica did nothing for it
    bool not_begun = false;  // by any replica: it may be handed over
    bool bounded = false;    // waits no longer than its deadline, whoever comes back

    double room_deadline_seconds = 0;  // ASKING

    // RUNNING:
    int32_t first_choice = 0;
    int32_t choice_count = 0;
    int32_t later_choices = 0;   // behind these: submitted where the KV goes, when it is there
    int32_t open_choices = 0;    // of choice_count, not ended
    bool prompt_pending = true;  // no event yet: its prompt counts as queued
    bool begun = false;          // the replica has said more than an error about it
    int64_t prompt_tokens = 0;   // to compute
    int64_t unspent_output_tokens = 0;  // of max_tokens, all choices: what may still come
    double first_choice_seconds = 0;    // when the first choice was last heard of
  };
  struct Replica {
    std::shared_ptr<ReplicaLink> link;
    bool draining = false;  // it said so; over this link it takes nothing more
    scheduler::ReplicaLoad load;
    int64_t awaited_sequences = 0;  // of load.running_sequences: there is but room for them
    scheduler::FastestRates usual;  // its own, while it was not slow; 0: not known
    double asked_seconds = 0;       // when it got work last
    int32_t owed_credit = 0;        // replies since it was given credit
    ReplicaActivity activity;
  };

  absl::Status CheckRequest(const GenerationRequest& request) const;
  absl::StatusOr<std::unique_ptr<GenerationHandle>> TryStart(GenerationRequest request,
                                                             std::shared_ptr<GenerationSink> sink);
  // The generations whose answer that request resumes and that still run here. With mutex_.
  std::vector<std::shared_ptr<LiveGeneration>> StreamsOf(const GenerationRequest& again) const;
  // Begins a generation, or has it wait for a replica. `replaced`: the streams of its answer before
  // it, which are to end.
  absl::Status Admit(const std::shared_ptr<LiveGeneration>& generation,
                     std::vector<std::shared_ptr<LiveGeneration>>* replaced);
  // Tokens that end an answer to the request.
  std::vector<int32_t> StopIds(const GenerationRequest& request) const;
  // Who serves a request: both the same where one replica does. Null: none is ready.
  struct Servers {
    Replica* prefill = nullptr;
    Replica* decode = nullptr;
    int pair = -1;  // scheduler::Route::pair
  };
  // As the router sees a replica where some have become slow.
  void ShowRates(const Replica& replica, const scheduler::FastestRates& fastest,
                 scheduler::ReplicaLoad* load) const;
  // What is left of a request: all, which two replicas may share; all, for one replica; or output
  // behind what there is.
  enum class Left { kAll, kAllAlone, kOutput };
  // One of `refused_by` only where all that are ready are among them.
  Servers Route(const GenerationRequest& request, const std::vector<std::string>& refused_by,
                Left left);
  // Routes a part that no replica has begun.
  void Begin(const Servers& servers, Part part);
  // Has a replica go on with a part that waits.
  void Resume(Replica& replica, Part part);
  // Has a replica compute so many choices of a part behind `output`. `codec`: of the prompt's KV,
  // where some is there.
  void SubmitChoices(Replica& replica, Part part, int32_t first_choice, int32_t choice_count,
                     const std::vector<int32_t>& output, v1::KvCodec codec = v1::KV_CODEC_RAW);
  // Has it compute the prompt, whose KV goes to the part's room behind the first choice's first
  // token; the other choices wait for it.
  void SubmitForHandOver(Replica& replica, Part part);
  // Has it go on with a choice whose KV arrived in `room`.
  void SubmitArrived(Replica& replica, Part part, const Room& room, const OpenChoice& choice);
  // What all three begin with and end with: the message, the accounts.
  v1::SessionRequest SubmitOf(uint64_t id, const Part& part,
                              const std::vector<int32_t>& output) const;
  void LimitWait(const Part& part, v1::Submit* submit) const;
  void Run(Replica& replica, uint64_t id, Part part, v1::SessionRequest message);

  // In and out of parts_, where no part changes its state.
  int64_t& CountOf(Part::State state) { return counts_[static_cast<size_t>(state)]; }
  void Add(uint64_t id, Part part);
  Part Take(uint64_t id);
  // Those that wait, the first first, taken out.
  std::vector<Part> TakeWaiting();
  // Takes a running part out of its replica's accounts, and gives its room back.
  void Unload(const Part& part);
  // A part that goes on behind `before`, as its next attempt, with all choices that are open.
  static Part GoOn(const Part& before, absl::Status reason);

  // Hand-over (hand_over.cc); all with mutex_ held but for OnReserved and EndReservations.
  void AskForRoom(const Replica& prefill, Replica& decode, Part part);
  void OnReserved(const std::shared_ptr<ReplicaLink>& link, const v1::Reserved& reserved);
  void GoOnAtDecode(uint64_t submission_id, const v1::KvTransfer& transfer);
  void NoteFailedHandOver(const Part& part, const absl::Status& reason);
  // The router counts what will decode there (`sign` 1), or no more (-1).
  void CountRoom(const Room& room, int sign);
  // Tells the replica that the room is no longer needed.
  void GiveRoomBack(const Room& room);
  // Those of a lost link, or (null) those that waited for too long: they go on without.
  void EndReservations(const std::shared_ptr<ReplicaLink>& link);
  void PlaceWithoutRoom(const Part& part, const absl::Status& reason);
  static void NoteReadiness(const v1::EngineLoad& load, Replica& replica);
  void ApplyEvent(const std::shared_ptr<ReplicaLink>& link, const v1::TokenEvent& event);
  void NoteEvent(Replica* replica, Part& part, const v1::TokenEvent& event, double now);
  void Account(const LiveGeneration& generation, const v1::TokenEvent& event,
               const EventOutcome& outcome, double now);
  // The event ends its choice with an error, or shows that tokens are missing.
  void OnFault(const std::shared_ptr<LiveGeneration>& generation, const v1::TokenEvent& event,
               const absl::Status& reason, double now);
  void Retry(uint64_t submission_id, const absl::Status& reason);
  // False: it had ended already.
  bool FailGeneration(const std::shared_ptr<LiveGeneration>& generation,
                      const absl::Status& reason);
  // Until it is too late for its deadline; infinity where it has none, or it is so already.
  double BeginSecondsLeft(const Part& part) const;
  // What is left of queue_timeout_seconds; infinity where it has no such limit.
  double QueueSecondsLeft(const Part& part) const;
  void FailOverdue(const std::shared_ptr<LiveGeneration>& generation);
  // Those that wait here and no replica has; with mutex_ held.
  std::vector<std::shared_ptr<LiveGeneration>> TakeOverdue();
  static void SendCancel(const Part& part, uint64_t submission_id, int32_t choice);
  void Place(Part part);
  void AwaitReplica(Part part, bool some_ready);
  void CancelGeneration(const std::shared_ptr<LiveGeneration>& generation);
  // No worker computes it any longer.
  void ForgetGeneration(const std::shared_ptr<LiveGeneration>& generation);
  void CloseChoice(uint64_t submission_id, bool tell_worker, int32_t choice);
  void GenerationEnded();

  const RequestFlowOptions options_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  RequestMetrics* const metrics_;

  mutable std::mutex mutex_;
  std::map<std::string, Replica> replicas_;
  PlanPairs pairs_;
  // By submission id: ASKING has that of its room, WAITING one that no replica hears of, in the
  // order in which they came to wait.
  std::unordered_map<uint64_t, Part> parts_;
  std::array<int64_t, 3> counts_ = {};  // of parts_, by state: so that no tick looks at all
  // The parts of one generation, so that cancelling it does not search all.
  std::unordered_map<const LiveGeneration*, std::vector<uint64_t>> by_generation_;
  uint64_t next_submission_id_;
  int64_t in_flight_ = 0;
  bool draining_ = false;
  bool has_served_ = false;                                          // some replica was ready, once
  double ready_seconds_ = -std::numeric_limits<double>::infinity();  // when the newest became so
};

}  // namespace tessera::coordinator

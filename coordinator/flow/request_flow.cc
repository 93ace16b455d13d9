#include "coordinator/flow/request_flow.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/flow/submit_message.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

// Replies a worker may have under way before the coordinator has read them. Enough that a step
// never waits for the network, few enough that a stuck coordinator stops the engine instead of
// filling its memory.
constexpr int32_t kInitialCredit = 256;
// Given back so many at a time: a message of its own for every reply would cost more than the reply
// does. What is left is still far more than is ever under way.
constexpr int32_t kCreditPiece = kInitialCredit / 8;
// 0 would be no limit.
constexpr double kMinQueueSeconds = 1e-3;

}  // namespace

// Lets go of a generation when the front door does.
class FlowHandle : public GenerationHandle {
 public:
  FlowHandle(std::shared_ptr<RequestFlow> flow, std::shared_ptr<LiveGeneration> generation)
      : flow_(std::move(flow)), generation_(std::move(generation)) {}
  ~FlowHandle() override { Cancel(); }
  void Cancel() override { flow_->CancelGeneration(generation_); }

 private:
  const std::shared_ptr<RequestFlow> flow_;
  const std::shared_ptr<LiveGeneration> generation_;
};

RequestFlow::RequestFlow(RequestFlowOptions options, std::shared_ptr<const Tokenizer> tokenizer,
                         RequestMetrics* metrics)
    : options_(std::move(options)),
      tokenizer_(std::move(tokenizer)),
      metrics_(metrics),
      next_submission_id_(options_.first_submission_id) {}

absl::Status RequestFlow::CheckRequest(const GenerationRequest& request) const {
  const int64_t prompt = static_cast<int64_t>(request.prompt_token_ids.size());
  if (prompt == 0)
    return absl::InvalidArgumentError("the prompt is empty: it needs at least one token");
  if (options_.max_model_len_tokens > 0 &&
      prompt + request.max_tokens > options_.max_model_len_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("This model's maximum context length is ", options_.max_model_len_tokens,
                     " tokens; the prompt has ", prompt, " and max_tokens asks for ",
                     request.max_tokens, " more: shorten the prompt or lower max_tokens"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GenerationHandle>> RequestFlow::Start(
    GenerationRequest request, std::shared_ptr<GenerationSink> sink) {
  auto handle = TryStart(std::move(request), std::move(sink));
  if (!handle.ok() && metrics_ != nullptr) metrics_->OnRefused(handle.status().code());
  return handle;
}

absl::StatusOr<std::unique_ptr<GenerationHandle>> RequestFlow::TryStart(
    GenerationRequest request, std::shared_ptr<GenerationSink> sink) {
  if (absl::Status s = CheckRequest(request); !s.ok()) return s;
  const double now = options_.now_seconds();
  auto generation =
      std::make_shared<LiveGeneration>(std::move(request), std::move(sink), tokenizer_, now);
  generation->Resume(StopIds(generation->request()), now);
  std::vector<std::shared_ptr<LiveGeneration>> replaced;
  if (generation->ended()) {
    std::lock_guard lock(mutex_);
    replaced = StreamsOf(generation->request());
  } else if (absl::Status s = Admit(generation, &replaced); !s.ok()) {
    return s;
  }
  // Only now: a request that is refused takes no stream away.
  for (const auto& stream : replaced) {
    FailGeneration(stream,
                   absl::AbortedError("another request resumes this answer (x-tessera-resume)"));
  }
  if (!generation->request().emitted_token_ids.empty()) generation->DeliverResumed();
  return std::make_unique<FlowHandle>(shared_from_this(), generation);
}

absl::Status RequestFlow::Admit(const std::shared_ptr<LiveGeneration>& generation,
                                std::vector<std::shared_ptr<LiveGeneration>>* replaced) {
  const bool resumed = !generation->request().emitted_token_ids.empty();
  std::lock_guard lock(mutex_);
  if (draining_) return absl::UnavailableError("the server is draining: it takes no new requests");
  *replaced = StreamsOf(generation->request());
  if (in_flight_ - std::ssize(*replaced) >= options_.max_requests) {
    return absl::ResourceExhaustedError(
        absl::StrCat(in_flight_, " requests are in flight, the limit is ", options_.max_requests));
  }
  const Servers servers = Route(generation->request(), {}, resumed ? Left::kOutput : Left::kAll);
  const bool changing = options_.changing_plan && options_.changing_plan();
  const bool forms_again = has_served_ && options_.recovering && options_.recovering();
  const bool waits = servers.prefill == nullptr && (changing || forms_again);
  if (servers.prefill == nullptr && !waits)
    return absl::UnavailableError("no replica is ready to serve this model yet");
  ++in_flight_;
  Part part;
  part.generation = generation;
  part.retry.taken = resumed;
  if (waits) {
    part.choices = generation->OpenChoices();
    part.reason = absl::UnavailableError(changing ? "another plan is being applied"
                                                  : "the replicas are being formed again");
    part.not_begun = !resumed;
    part.bounded = !changing;
    AwaitReplica(std::move(part), false);
  } else if (resumed) {
    part.choices = generation->OpenChoices();
    pairs_.NoteRouted(servers.pair);
    Resume(*servers.prefill, std::move(part));
  } else {
    Begin(servers, std::move(part));
  }
  return absl::OkStatus();
}

RequestFlow::Servers RequestFlow::Route(const GenerationRequest& request,
                                        const std::vector<std::string>& refused_by, Left left) {
  const auto refused = [&](const std::string& name) {
    return std::find(refused_by.begin(), refused_by.end(), name) != refused_by.end();
  };
  const bool others = std::any_of(replicas_.begin(), replicas_.end(), [&](const auto& entry) {
    return entry.second.load.ready && !refused(entry.first);
  });
  std::vector<scheduler::ReplicaLoad> loads;
  std::vector<Replica*> order;
  std::vector<std::string> names;
  for (auto& [name, replica] : replicas_) {
    loads.push_back(replica.load);
    if (others && refused(name)) loads.back().ready = false;
    const v1::WorkerReady& pool = replica.link->ready();
    loads.back().kv_tokens = int64_t{pool.kv_blocks()} * pool.block_tokens();
    order.push_back(&replica);
    names.push_back(name);
  }
  const scheduler::FastestRates fastest = scheduler::FastestOf(loads);
  const bool some_slow =
      std::any_of(loads.begin(), loads.end(), [](const auto& load) { return load.slowdown > 1; });
  for (size_t i = 0; some_slow && i < loads.size(); ++i) ShowRates(*order[i], fastest, &loads[i]);
  scheduler::RouteRequest asked;
  asked.prompt_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
  asked.choices = request.choice_count;
  asked.expected_output_tokens = int64_t{request.max_tokens} * request.choice_count;
  asked.alone = left != Left::kAll || request.max_tokens < 2;  // one token is prefill's own
  asked.begun = left == Left::kOutput;
  const scheduler::Route route =
      scheduler::ChoosePair(loads, pairs_.Snapshot(names, options_.now_seconds()), asked);
  if (options_.on_route) options_.on_route(loads, asked, route);
  Logger("coordinator")
      .debug("request {}: {}", request.request_id, scheduler::Explain(route, loads));
  if (route.prefill_replica < 0) return {};
  return {order[route.prefill_replica], order[route.decode_replica], route.pair};
}

void RequestFlow::ShowRates(const Replica& replica, const scheduler::FastestRates& fastest,
                            scheduler::ReplicaLoad* load) const {
  const bool slow = load->slowdown > 1;
  const bool probed = slow && load->running_sequences == 0 &&
                      options_.now_seconds() >= replica.asked_seconds + options_.slow_probe_seconds;
  if (probed) load->slowdown = 1;
  const auto show = [&](double usual, double best, double* rate) {
    if (slow) *rate = usual / load->slowdown;
    // Else the slow one might be the fastest that is known.
    if (*rate <= 0) *rate = best / load->slowdown;
  };
  show(replica.usual.prefill_tokens_per_second, fastest.prefill_tokens_per_second,
       &load->prefill_tokens_per_second);
  show(replica.usual.decode_tokens_per_second, fastest.decode_tokens_per_second,
       &load->decode_tokens_per_second);
}

void RequestFlow::Begin(const Servers& servers, Part part) {
  pairs_.NoteRouted(servers.pair);
  if (servers.decode != servers.prefill) {
    AskForRoom(*servers.prefill, *servers.decode, std::move(part));
  } else {
    const int32_t choices = part.generation->request().choice_count;
    SubmitChoices(*servers.prefill, std::move(part), 0, choices, {});
  }
}

void RequestFlow::Resume(Replica& replica, Part part) {
  const std::vector<OpenChoice> choices = std::exchange(part.choices, {});
  const int32_t all_choices = part.generation->request().choice_count;
  const bool untouched = static_cast<int32_t>(choices.size()) == all_choices &&
                         std::all_of(choices.begin(), choices.end(), [](const OpenChoice& c) {
                           return c.output_token_ids.empty();
                         });
  if (untouched) return SubmitChoices(replica, std::move(part), 0, all_choices, {});
  for (const OpenChoice& choice : choices)
    SubmitChoices(replica, part, choice.choice, 1, choice.output_token_ids);
}

void RequestFlow::SubmitChoices(Replica& replica, Part part, int32_t first_choice,
                                int32_t choice_count, const std::vector<int32_t>& output,
                                v1::KvCodec codec) {
  const GenerationRequest& request = part.generation->request();
  const auto output_tokens = static_cast<int64_t>(output.size());
  part.first_choice = first_choice;
  part.choice_count = choice_count;
  part.prompt_tokens = static_cast<int64_t>(request.prompt_token_ids.size()) + output_tokens;
  part.unspent_output_tokens = choice_count * (request.max_tokens - output_tokens);
  const uint64_t id = next_submission_id_++;
  v1::SessionRequest message = SubmitOf(id, part, output);
  if (output.empty()) LimitWait(part, message.mutable_submit());
  message.mutable_submit()->set_kv_codec(codec);
  Run(replica, id, std::move(part), std::move(message));
}

v1::SessionRequest RequestFlow::SubmitOf(uint64_t id, const Part& part,
                                         const std::vector<int32_t>& output) const {
  v1::SessionRequest message = ToSubmit(part.generation->request());
  v1::Submit& submit = *message.mutable_submit();
  submit.set_submission_id(id);
  submit.set_attempt(part.attempt);
  submit.set_first_choice(part.first_choice);
  submit.set_choice_count(part.choice_count);
  submit.mutable_output_token_ids()->Add(output.begin(), output.end());
  // Once is enough; a continued choice has been past its prompt.
  if (!output.empty() || part.generation->prompt_logprobs_told()) submit.set_prompt_logprobs(-1);
  if (part.retry.late) submit.set_turn(part.generation->request().late_turn);
  return message;
}

void RequestFlow::LimitWait(const Part& part, v1::Submit* submit) const {
  const double seconds_left = std::min(QueueSecondsLeft(part), BeginSecondsLeft(part));
  if (std::isfinite(seconds_left))
    submit->set_queue_timeout_seconds(std::max(seconds_left, kMinQueueSeconds));
}

void RequestFlow::Run(Replica& replica, uint64_t id, Part part, v1::SessionRequest message) {
  part.state = Part::State::kRunning;
  part.link = replica.link;
  part.open_choices = part.choice_count;
  part.first_choice_seconds = replica.asked_seconds = options_.now_seconds();
  if (part.prompt_pending) replica.activity.prefilling_sequences += part.choice_count;
  scheduler::NoteSubmitted(part.prompt_tokens, part.choice_count, part.unspent_output_tokens,
                           &replica.load);
  Add(id, std::move(part));
  // A link that was lost this moment reports so, and the part is placed again then.
  replica.link->Send(std::move(message));
}

void RequestFlow::Add(uint64_t id, Part part) {
  ++CountOf(part.state);
  by_generation_[part.generation.get()].push_back(id);
  parts_.emplace(id, std::move(part));
}

RequestFlow::Part RequestFlow::Take(uint64_t id) {
  const auto found = parts_.find(id);
  Part part = std::move(found->second);
  parts_.erase(found);
  --CountOf(part.state);
  const auto ids = by_generation_.find(part.generation.get());
  std::erase(ids->second, id);
  if (ids->second.empty()) by_generation_.erase(ids);
  return part;
}

void RequestFlow::Unload(const Part& part) {
  if (part.room.has_value()) GiveRoomBack(*part.room);
  const auto replica = replicas_.find(part.link->replica());
  if (replica == replicas_.end() || replica->second.link != part.link) return;
  scheduler::ReplicaLoad& load = replica->second.load;
  if (part.prompt_pending) {
    load.queued_prompt_tokens -= part.prompt_tokens;
    replica->second.activity.prefilling_sequences -= part.choice_count;
  }
  load.running_sequences -= part.open_choices;
  load.outstanding_output_tokens -= part.unspent_output_tokens;
}

void RequestFlow::OnLinkReady(std::shared_ptr<ReplicaLink> link) {
  std::vector<Part> waiting;
  {
    std::lock_guard lock(mutex_);
    Replica& replica = replicas_[link->replica()];
    replica = Replica();
    replica.link = link;
    replica.load.ready = true;
    replica.load.max_sequences = link->max_sequences();
    replica.activity.replica = link->replica();
    waiting = TakeWaiting();
    has_served_ = true;
    ready_seconds_ = options_.now_seconds();
    pairs_.RestartCounts();
  }
  v1::SessionRequest credit;
  credit.mutable_credit()->set_messages(kInitialCredit);
  // Lost before it was ours: nobody will say so again.
  if (!link->Send(std::move(credit)))
    OnLinkLost(link, absl::UnavailableError("lost while the session was being opened"));
  if (metrics_ != nullptr) {
    metrics_->OnReplicaReady(link->replica(), link->ready().block_tokens(),
                             link->ready().kv_blocks());
  }
  for (Part& part : waiting) {
    std::erase(part.retry.refused_by, link->replica());
    Place(std::move(part));
  }
}

void RequestFlow::NoteReadiness(const v1::EngineLoad& load, Replica& replica) {
  replica.draining |= load.draining();
  replica.load.ready = !replica.draining;
}

void RequestFlow::OnHeartbeat(const std::shared_ptr<ReplicaLink>& link,
                              const v1::EngineLoad& load) {
  std::lock_guard lock(mutex_);
  auto replica = replicas_.find(link->replica());
  if (replica != replicas_.end() && replica->second.link == link)
    NoteReadiness(load, replica->second);
}

void RequestFlow::OnReply(const std::shared_ptr<ReplicaLink>& link, const v1::SessionReply& reply) {
  bool gives_credit = false;
  {
    std::lock_guard lock(mutex_);
    auto replica = replicas_.find(link->replica());
    if (replica != replicas_.end() && replica->second.link == link) {
      gives_credit = ++replica->second.owed_credit == kCreditPiece;
      if (gives_credit) replica->second.owed_credit = 0;
      ReplicaActivity& activity = replica->second.activity;
      ++activity.messages;
      // Before the events: what it refuses with this reply stands against it until the next.
      if (reply.has_load()) NoteReadiness(reply.load(), replica->second);
      activity.prompt_tokens = static_cast<int64_t>(reply.load().prompt_tokens());
      activity.generation_tokens = static_cast<int64_t>(reply.load().generation_tokens());
    }
  }
  for (const v1::Reserved& reserved : reply.reserved()) OnReserved(link, reserved);
  for (const v1::TokenEvent& event : reply.events()) ApplyEvent(link, event);
  if (metrics_ != nullptr && reply.has_load())
    metrics_->OnEngineLoad(link->replica(), reply.load());
  if (!gives_credit) return;
  v1::SessionRequest credit;
  credit.mutable_credit()->set_messages(kCreditPiece);
  link->Send(std::move(credit));
}

void RequestFlow::ApplyEvent(const std::shared_ptr<ReplicaLink>& link,
                             const v1::TokenEvent& event) {
  const double now = options_.now_seconds();
  std::shared_ptr<LiveGeneration> generation;
  {
    std::lock_guard lock(mutex_);
    auto found = parts_.find(event.submission_id());
    if (found == parts_.end()) return;  // cancelled, or continued elsewhere
    Part& part = found->second;
    if (part.state != Part::State::kRunning || part.link != link ||
        part.attempt != event.attempt()) {
      return;
    }
    generation = part.generation;
    auto replica = replicas_.find(link->replica());
    NoteEvent(replica == replicas_.end() ? nullptr : &replica->second, part, event, now);
    if (event.finish() == v1::FINISH_REASON_HANDED_OVER) {
      generation->NoteKvTransfer(event.kv_transfer());
      return GoOnAtDecode(event.submission_id(), event.kv_transfer());
    }
  }
  const EventOutcome outcome = generation->Apply(event, link->replica(), now);
  if (!outcome.broken.ok()) return OnFault(generation, event, outcome.broken, now);
  Account(*generation, event, outcome, now);
  if (outcome.choice_finished)
    CloseChoice(event.submission_id(), outcome.stop_string, event.choice());
  if (outcome.generation_finished) GenerationEnded();
}

void RequestFlow::NoteEvent(Replica* replica, Part& part, const v1::TokenEvent& event, double now) {
  if (event.finish() != v1::FINISH_REASON_ERROR) {
    part.begun = true;
    part.retry.refused_by.clear();
    part.retry.taken = true;
    part.retry.deadline_seconds = 0;
  }
  if (replica == nullptr || replica->link != part.link) return;
  scheduler::ReplicaLoad& load = replica->load;
  if (part.prompt_pending) {
    part.prompt_pending = false;
    replica->activity.prefilling_sequences -= part.choice_count;
    scheduler::NotePromptComputed(part.prompt_tokens, part.prompt_tokens - event.cached_tokens(),
                                  event.prefill_seconds(), &load);
  } else if (event.has_token() && event.choice() == part.first_choice &&
             now > part.first_choice_seconds) {
    scheduler::NoteTokenGap(1, now - part.first_choice_seconds, &load);
  }
  if (event.choice() == part.first_choice) part.first_choice_seconds = now;
  if (event.has_token()) {
    --part.unspent_output_tokens;
    --load.outstanding_output_tokens;
  }
}

void RequestFlow::Account(const LiveGeneration& generation, const v1::TokenEvent& event,
                          const EventOutcome& outcome, double now) {
  if (metrics_ == nullptr) return;
  if (outcome.first_token) {
    metrics_->OnFirstToken(now - generation.arrival_seconds(), event.queue_seconds(),
                           event.prefill_seconds());
  }
  if (outcome.since_last_token_seconds >= 0)
    metrics_->OnLaterToken(outcome.since_last_token_seconds);
  if (outcome.choice_finished) {
    const bool stopped = outcome.stop_string || event.finish() == v1::FINISH_REASON_STOP;
    metrics_->OnChoiceEnd({.finished_reason = stopped ? "stop" : "length",
                           .tokens = outcome.choice_tokens,
                           .decode_seconds = outcome.choice_decode_seconds});
  }
  if (outcome.generation_finished) metrics_->OnRequestEnd(generation.Answered(now));
}

void RequestFlow::CloseChoice(uint64_t submission_id, bool tell_worker, int32_t choice) {
  Part later;  // its KV goes nowhere: those that waited for it compute the prompt
  {
    std::lock_guard lock(mutex_);
    auto found = parts_.find(submission_id);
    if (found == parts_.end() || found->second.state != Part::State::kRunning) return;
    if (tell_worker) SendCancel(found->second, submission_id, choice);
    auto replica = replicas_.find(found->second.link->replica());
    if (replica != replicas_.end() && replica->second.link == found->second.link)
      --replica->second.load.running_sequences;
    if (--found->second.open_choices > 0) return;
    const Part part = Take(submission_id);
    Unload(part);
    if (part.later_choices == 0) return;
    later = GoOn(part, absl::AbortedError("the first choice ended with its first token"));
    later.attempt = part.attempt;
  }
  Place(std::move(later));
}

void RequestFlow::SendCancel(const Part& part, uint64_t submission_id, int32_t choice) {
  v1::SessionRequest message;
  v1::Cancel& cancel = *message.mutable_cancel();
  cancel.set_submission_id(submission_id);
  cancel.set_attempt(part.attempt);
  cancel.set_choice(choice);
  part.link->Send(std::move(message));
}

bool RequestFlow::FailGeneration(const std::shared_ptr<LiveGeneration>& generation,
                                 const absl::Status& reason) {
  const bool failed = generation->Fail(reason);
  if (failed) {
    Logger("coordinator")
        .warn("request {} failed: {}", generation->request().request_id,
              std::string(reason.message()));
    if (metrics_ != nullptr) {
      metrics_->OnChoiceEnd({.finished_reason = "error"});
      if (absl::IsResourceExhausted(reason)) metrics_->OnRefused(reason.code());
    }
    GenerationEnded();
  }
  ForgetGeneration(generation);  // not silenced: another thread may still deliver its end
  return failed;
}

void RequestFlow::CancelGeneration(const std::shared_ptr<LiveGeneration>& generation) {
  const bool was_running = generation->Silence();
  ForgetGeneration(generation);
  if (!was_running) return;
  if (metrics_ != nullptr) metrics_->OnChoiceEnd({.finished_reason = "abort"});
  GenerationEnded();
}

void RequestFlow::ForgetGeneration(const std::shared_ptr<LiveGeneration>& generation) {
  std::lock_guard lock(mutex_);
  const auto found = by_generation_.find(generation.get());
  if (found == by_generation_.end()) return;
  const std::vector<uint64_t> ids = found->second;
  for (const uint64_t id : ids) {
    const Part part = Take(id);
    switch (part.state) {
      case Part::State::kWaiting: break;
      case Part::State::kAsking: GiveRoomBack(*part.room); break;
      case Part::State::kRunning:
        SendCancel(part, id, -1);
        Unload(part);
        break;
    }
  }
}

void RequestFlow::GenerationEnded() {
  std::lock_guard lock(mutex_);
  --in_flight_;
}

void RequestFlow::SetPairs(PlanPairs pairs) {
  std::lock_guard lock(mutex_);
  if (!pairs.SamePairs(pairs_)) pairs_ = std::move(pairs);
}

double RequestFlow::ExpectedSeconds(double prompt_tokens, double answer_tokens) const {
  std::lock_guard lock(mutex_);
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [name, replica] : replicas_) {
    const scheduler::ReplicaLoad& load = replica.load;
    if (!load.ready || load.prefill_tokens_per_second <= 0 || load.decode_tokens_per_second <= 0)
      continue;
    least = std::min(least, prompt_tokens / load.prefill_tokens_per_second +
                                answer_tokens / load.decode_tokens_per_second);
  }
  return std::isfinite(least) ? least : 0;
}

void RequestFlow::SetSlowdowns(const std::map<std::string, double>& slowdowns) {
  // A replica's first slow seconds, before it is known to be slow, weigh little.
  constexpr double kNewestShare = 0.01;
  const auto note = [](double measured, double* usual) {
    if (measured <= 0) return;
    *usual = *usual > 0 ? *usual + kNewestShare * (measured - *usual) : measured;
  };
  std::lock_guard lock(mutex_);
  for (auto& [name, replica] : replicas_) {
    const auto found = slowdowns.find(name);
    replica.load.slowdown = found == slowdowns.end() ? 1 : std::max(1.0, found->second);
    if (replica.load.slowdown > 1) continue;
    note(replica.load.prefill_tokens_per_second, &replica.usual.prefill_tokens_per_second);
    note(replica.load.decode_tokens_per_second, &replica.usual.decode_tokens_per_second);
  }
}

void RequestFlow::Drain() {
  std::lock_guard lock(mutex_);
  draining_ = true;
}

bool RequestFlow::draining() const {
  std::lock_guard lock(mutex_);
  return draining_;
}

void RequestFlow::AbortAll(const absl::Status& reason) {
  std::vector<std::shared_ptr<LiveGeneration>> all;
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
    for (auto& [id, part] : parts_) all.push_back(part.generation);
  }
  for (const auto& generation : all) FailGeneration(generation, reason);
}

int64_t RequestFlow::requests_in_flight() const {
  std::lock_guard lock(mutex_);
  return in_flight_;
}

int RequestFlow::ready_replicas() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(replicas_.begin(), replicas_.end(),
                                        [](const auto& entry) { return entry.second.load.ready; }));
}

std::vector<ReplicaActivity> RequestFlow::activity() const {
  std::lock_guard lock(mutex_);
  std::vector<ReplicaActivity> all;
  for (const auto& [name, replica] : replicas_) {
    all.push_back(replica.activity);
    all.back().ready = replica.load.ready;
    all.back().running_sequences = replica.load.running_sequences - replica.awaited_sequences;
    all.back().queued_prompt_tokens = replica.load.queued_prompt_tokens;
  }
  return all;
}

void RequestFlow::CountSequences() const {
  if (metrics_ == nullptr) return;
  for (const ReplicaActivity& replica : activity())
    metrics_->OnSequences(replica.replica, replica.running_sequences);
}

int64_t RequestFlow::WorkOf(const std::string& replica) const {
  std::lock_guard lock(mutex_);
  const auto is_of = [&](const Part& part) {
    const bool its_room = part.room && part.room->link->replica() == replica;
    return part.state != Part::State::kWaiting && (its_room || part.link->replica() == replica);
  };
  return std::count_if(parts_.begin(), parts_.end(),
                       [&](const auto& entry) { return is_of(entry.second); });
}

}  // namespace tessera::coordinator

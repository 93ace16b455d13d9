#include "coordinator/request_flow.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

// Replies a worker may have under way before the coordinator has read them. Enough that a step
// never waits for the network, few enough that a stuck coordinator stops the engine instead of
// filling its memory.
constexpr int32_t kInitialCredit = 256;

// An error that another replica may not have.
bool WorthRetrying(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted: return true;
    default: return false;
  }
}

v1::SessionRequest ToSubmit(const GenerationRequest& request) {
  v1::SessionRequest message;
  v1::Submit& submit = *message.mutable_submit();
  submit.set_request_id(request.request_id);
  submit.mutable_prompt_token_ids()->Add(request.prompt_token_ids.begin(),
                                         request.prompt_token_ids.end());
  v1::SamplingParams& sampling = *submit.mutable_sampling();
  sampling.set_temperature(request.sampling.temperature);
  sampling.set_top_p(request.sampling.top_p);
  sampling.set_top_k(request.sampling.top_k);
  sampling.set_min_p(request.sampling.min_p);
  sampling.set_repetition_penalty(request.sampling.repetition_penalty);
  sampling.set_presence_penalty(request.sampling.presence_penalty);
  sampling.set_frequency_penalty(request.sampling.frequency_penalty);
  for (const auto& [token, bias] : request.sampling.logit_bias)
    (*sampling.mutable_logit_bias())[token] = bias;
  sampling.set_seed(request.sampling.seed);
  submit.set_max_tokens(request.max_tokens);
  submit.set_min_tokens(request.min_tokens);
  submit.mutable_stop_token_ids()->Add(request.stop_token_ids.begin(),
                                       request.stop_token_ids.end());
  submit.set_ignore_eos(request.ignore_eos);
  submit.set_top_logprobs(request.top_logprobs);
  submit.set_prompt_logprobs(request.prompt_logprobs);
  submit.set_cache_salt(request.cache_salt);
  submit.set_priority(request.priority);
  return message;
}

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
    : options_(std::move(options)), tokenizer_(std::move(tokenizer)), metrics_(metrics) {}

absl::Status RequestFlow::CheckRequest(const GenerationRequest& request) const {
  const int64_t prompt = static_cast<int64_t>(request.prompt_token_ids.size());
  if (prompt == 0)
    return absl::InvalidArgumentError("the prompt is empty: one token at least is needed");
  if (options_.max_model_len_tokens > 0 &&
      prompt + request.max_tokens > options_.max_model_len_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("this model's context is ", options_.max_model_len_tokens,
                     " tokens; the prompt has ", prompt, " and max_tokens asks for ",
                     request.max_tokens, " more: shorten the prompt or lower max_tokens"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GenerationHandle>> RequestFlow::Start(
    GenerationRequest request, std::shared_ptr<GenerationSink> sink) {
  if (absl::Status s = CheckRequest(request); !s.ok()) return s;
  auto generation = std::make_shared<LiveGeneration>(std::move(request), std::move(sink),
                                                     tokenizer_, options_.now_seconds());
  std::lock_guard lock(mutex_);
  if (draining_) return absl::UnavailableError("the server is draining: it takes no new requests");
  if (in_flight_ >= options_.max_requests) {
    return absl::ResourceExhaustedError(
        absl::StrCat(in_flight_, " requests are in flight, the limit is ", options_.max_requests));
  }
  Replica* replica = Route(generation->request());
  if (replica == nullptr)
    return absl::UnavailableError("no replica is ready to serve this model yet");
  ++in_flight_;
  SendSubmission(*replica, generation, 0, generation->request().choice_count, {}, 1);
  return std::make_unique<FlowHandle>(shared_from_this(), generation);
}

RequestFlow::Replica* RequestFlow::Route(const GenerationRequest& request) {
  std::vector<scheduler::ReplicaLoad> loads;
  std::vector<Replica*> order;
  for (auto& [name, replica] : replicas_) {
    loads.push_back(replica.load);
    order.push_back(&replica);
  }
  const scheduler::Route route = scheduler::ChooseReplica(
      loads, {static_cast<int64_t>(request.prompt_token_ids.size()),
              static_cast<int64_t>(request.max_tokens) * request.choice_count});
  Logger("coordinator")
      .debug("request {}: {}", request.request_id, scheduler::Explain(route, loads));
  return route.prefill_replica < 0 ? nullptr : order[route.prefill_replica];
}

void RequestFlow::SendSubmission(Replica& replica,
                                 const std::shared_ptr<LiveGeneration>& generation,
                                 int32_t first_choice, int32_t choice_count,
                                 const std::vector<int32_t>& output, uint32_t attempt) {
  const uint64_t id = next_submission_id_++;
  Submission submission;
  submission.generation = generation;
  submission.link = replica.link;
  submission.attempt = attempt;
  submission.first_choice = first_choice;
  submission.choice_count = choice_count;
  submission.open_choices = choice_count;
  submission.prompt_tokens =
      static_cast<int64_t>(generation->request().prompt_token_ids.size() + output.size());
  submission.first_choice_seconds = options_.now_seconds();
  replica.activity.prefilling_sequences += choice_count;
  submission.unspent_output_tokens =
      choice_count * (generation->request().max_tokens - static_cast<int64_t>(output.size()));
  scheduler::NoteSubmitted(submission.prompt_tokens, choice_count, submission.unspent_output_tokens,
                           &replica.load);
  submissions_.emplace(id, std::move(submission));
  by_generation_[generation.get()].push_back(id);

  v1::SessionRequest message = ToSubmit(generation->request());
  v1::Submit& submit = *message.mutable_submit();
  submit.set_submission_id(id);
  submit.set_attempt(attempt);
  submit.set_first_choice(first_choice);
  submit.set_choice_count(choice_count);
  submit.mutable_output_token_ids()->Add(output.begin(), output.end());
  // Told once; a continued choice has been past its prompt.
  if (!output.empty()) submit.set_prompt_logprobs(-1);
  // A link that was lost this moment reports so, and the submission is placed again then.
  replica.link->Send(std::move(message));
}

void RequestFlow::Submit(Replica& replica, const std::shared_ptr<LiveGeneration>& generation,
                         const std::vector<OpenChoice>& choices, uint32_t attempt) {
  const bool untouched =
      static_cast<int32_t>(choices.size()) == generation->request().choice_count &&
      std::all_of(choices.begin(), choices.end(),
                  [](const OpenChoice& c) { return c.output_token_ids.empty(); });
  if (untouched) {
    SendSubmission(replica, generation, 0, generation->request().choice_count, {}, attempt);
    return;
  }
  for (const OpenChoice& choice : choices) {
    SendSubmission(replica, generation, choice.choice, 1, choice.output_token_ids, attempt);
  }
}

void RequestFlow::OnLinkReady(std::shared_ptr<ReplicaLink> link) {
  std::deque<Orphan> orphans;
  {
    std::lock_guard lock(mutex_);
    Replica& replica = replicas_[link->replica()];
    replica = Replica();
    replica.link = link;
    replica.load.ready = true;
    replica.load.max_sequences = link->max_sequences();
    replica.activity.replica = link->replica();
    std::swap(orphans, orphans_);
  }
  v1::SessionRequest credit;
  credit.mutable_credit()->set_messages(kInitialCredit);
  // Lost before it was ours: nobody will say so again.
  if (!link->Send(std::move(credit)))
    OnLinkLost(link, absl::UnavailableError("lost while it was opened"));
  if (metrics_ != nullptr) {
    metrics_->OnReplicaReady(link->replica(), link->ready().block_tokens(),
                             link->ready().kv_blocks());
  }
  for (Orphan& orphan : orphans) Place(std::move(orphan));
}

void RequestFlow::OnReply(const std::shared_ptr<ReplicaLink>& link, const v1::SessionReply& reply) {
  for (const v1::TokenEvent& event : reply.events()) ApplyEvent(link, event);
  {
    std::lock_guard lock(mutex_);
    auto replica = replicas_.find(link->replica());
    if (replica != replicas_.end() && replica->second.link == link) {
      ReplicaActivity& activity = replica->second.activity;
      ++activity.messages;
      activity.prompt_tokens = static_cast<int64_t>(reply.load().prompt_tokens());
      activity.generation_tokens = static_cast<int64_t>(reply.load().generation_tokens());
    }
  }
  if (metrics_ != nullptr && reply.has_load())
    metrics_->OnEngineLoad(link->replica(), reply.load());
  v1::SessionRequest credit;
  credit.mutable_credit()->set_messages(1);
  link->Send(std::move(credit));
}

void RequestFlow::ApplyEvent(const std::shared_ptr<ReplicaLink>& link,
                             const v1::TokenEvent& event) {
  const double now = options_.now_seconds();
  std::shared_ptr<LiveGeneration> generation;
  {
    std::lock_guard lock(mutex_);
    auto found = submissions_.find(event.submission_id());
    if (found == submissions_.end()) return;  // cancelled, or continued elsewhere
    Submission& submission = found->second;
    if (submission.link != link || submission.attempt != event.attempt()) return;
    generation = submission.generation;
    auto replica = replicas_.find(link->replica());
    NoteEvent(replica == replicas_.end() ? nullptr : &replica->second, submission, event, now);
  }
  const EventOutcome outcome = generation->Apply(event, link->replica(), now);
  if (!outcome.broken.ok()) {
    Retry(event.submission_id(), outcome.broken);
    return;
  }
  Account(*generation, event, outcome, now);
  if (outcome.choice_finished)
    CloseChoice(event.submission_id(), outcome.stop_string, event.choice());
  if (outcome.generation_finished) GenerationEnded();
}

void RequestFlow::NoteEvent(Replica* replica, Submission& submission, const v1::TokenEvent& event,
                            double now) {
  if (replica == nullptr || replica->link != submission.link) return;
  scheduler::ReplicaLoad& load = replica->load;
  if (submission.prompt_pending) {
    submission.prompt_pending = false;
    replica->activity.prefilling_sequences -= submission.choice_count;
    scheduler::NotePromptComputed(submission.prompt_tokens,
                                  submission.prompt_tokens - event.cached_tokens(),
                                  event.prefill_seconds(), &load);
  } else if (event.has_token() && event.choice() == submission.first_choice &&
             now > submission.first_choice_seconds) {
    scheduler::NoteTokenGap(1, now - submission.first_choice_seconds, &load);
  }
  if (event.choice() == submission.first_choice) submission.first_choice_seconds = now;
  if (event.has_token()) {
    --submission.unspent_output_tokens;
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
    metrics_->OnChoiceEnd(stopped ? "stop" : "length");
  }
  if (outcome.generation_finished) {
    metrics_->OnRequestEnd(now - generation.arrival_seconds(),
                           now - generation.first_token_seconds());
  }
}

void RequestFlow::CloseChoice(uint64_t submission_id, bool tell_worker, int32_t choice) {
  std::lock_guard lock(mutex_);
  auto found = submissions_.find(submission_id);
  if (found == submissions_.end()) return;
  Submission& submission = found->second;
  if (tell_worker) SendCancel(submission, submission_id, choice);
  auto replica = replicas_.find(submission.link->replica());
  if (replica != replicas_.end() && replica->second.link == submission.link) {
    --replica->second.load.running_sequences;
  }
  if (--submission.open_choices > 0) return;
  Forget(submission_id, submission);
}

// Takes a submission out of every account. The iterator's element dies here.
void RequestFlow::Forget(uint64_t submission_id, Submission& submission) {
  auto replica = replicas_.find(submission.link->replica());
  if (replica != replicas_.end() && replica->second.link == submission.link) {
    scheduler::ReplicaLoad& load = replica->second.load;
    if (submission.prompt_pending) {
      load.queued_prompt_tokens -= submission.prompt_tokens;
      replica->second.activity.prefilling_sequences -= submission.choice_count;
    }
    load.running_sequences -= submission.open_choices;
    load.outstanding_output_tokens -= submission.unspent_output_tokens;
  }
  auto ids = by_generation_.find(submission.generation.get());
  if (ids != by_generation_.end()) {
    std::erase(ids->second, submission_id);
    if (ids->second.empty()) by_generation_.erase(ids);
  }
  submissions_.erase(submission_id);
}

void RequestFlow::SendCancel(const Submission& submission, uint64_t submission_id, int32_t choice) {
  v1::SessionRequest message;
  v1::Cancel& cancel = *message.mutable_cancel();
  cancel.set_submission_id(submission_id);
  cancel.set_attempt(submission.attempt);
  cancel.set_choice(choice);
  submission.link->Send(std::move(message));
}

// One choice's error takes its whole submission along: the worker is told, and what is open goes
// elsewhere.
void RequestFlow::Retry(uint64_t submission_id, const absl::Status& reason) {
  Orphan orphan;
  {
    std::lock_guard lock(mutex_);
    auto found = submissions_.find(submission_id);
    if (found == submissions_.end()) return;
    Submission& submission = found->second;
    orphan.generation = submission.generation;
    orphan.attempt = submission.attempt + 1;
    orphan.reason = reason;
    for (OpenChoice& open : submission.generation->OpenChoices()) {
      const int32_t index = open.choice - submission.first_choice;
      if (index >= 0 && index < submission.choice_count) orphan.choices.push_back(std::move(open));
    }
    SendCancel(submission, submission_id, -1);
    Forget(submission_id, submission);
  }
  if (WorthRetrying(reason)) {
    Place(std::move(orphan));
  } else {
    FailGeneration(orphan.generation, reason);
  }
}

void RequestFlow::OnLinkLost(const std::shared_ptr<ReplicaLink>& link, const absl::Status& reason) {
  std::vector<Orphan> orphans;
  bool served = false;
  {
    std::lock_guard lock(mutex_);
    auto replica = replicas_.find(link->replica());
    // A link that never became ready, or has a successor, takes its replica's figures nowhere.
    served = replica != replicas_.end() && replica->second.link == link;
    if (served) replicas_.erase(replica);
    std::map<LiveGeneration*, Orphan> by_generation;
    std::vector<uint64_t> ids;
    for (auto& [id, submission] : submissions_) {
      if (submission.link != link) continue;
      ids.push_back(id);
      Orphan& orphan = by_generation[submission.generation.get()];
      orphan.generation = submission.generation;
      orphan.attempt = std::max(orphan.attempt, submission.attempt + 1);
      orphan.reason = absl::UnavailableError(
          absl::StrCat("replica ", link->replica(), " was lost: ", std::string(reason.message())));
    }
    for (uint64_t id : ids) Forget(id, submissions_.at(id));
    for (auto& [generation, orphan] : by_generation) {
      orphan.choices = generation->OpenChoices();
      orphans.push_back(std::move(orphan));
    }
  }
  if (metrics_ != nullptr && served) metrics_->OnReplicaLost(link->replica());
  if (!orphans.empty()) {
    Logger("coordinator")
        .warn("replica {} was lost ({}); {} requests go on elsewhere", link->replica(),
              std::string(reason.message()), orphans.size());
  }
  for (Orphan& orphan : orphans) Place(std::move(orphan));
}

void RequestFlow::Place(Orphan orphan) {
  if (orphan.choices.empty()) return;
  if (orphan.attempt > static_cast<uint32_t>(options_.max_attempts)) {
    FailGeneration(orphan.generation, orphan.reason);
    return;
  }
  std::lock_guard lock(mutex_);
  if (orphan.generation->ended()) return;
  Replica* replica = Route(orphan.generation->request());
  const std::string& request_id = orphan.generation->request().request_id;
  const std::string reason(orphan.reason.message());
  if (replica != nullptr) {
    Logger("coordinator")
        .info("request {} goes on at replica {}, attempt {}: {}", request_id,
              replica->link->replica(), orphan.attempt, reason);
    if (metrics_ != nullptr) metrics_->OnMigration();
    Submit(*replica, orphan.generation, orphan.choices, orphan.attempt);
    return;
  }
  if (orphan.deadline_seconds == 0) {
    orphan.deadline_seconds = options_.now_seconds() + options_.recovery_timeout_seconds;
  }
  Logger("coordinator")
      .warn("request {} waits for a replica, for at most {} s: {}", request_id,
            options_.recovery_timeout_seconds, reason);
  orphans_.push_back(std::move(orphan));
}

void RequestFlow::Tick() {
  std::vector<Orphan> expired;
  {
    std::lock_guard lock(mutex_);
    const double now = options_.now_seconds();
    for (auto it = orphans_.begin(); it != orphans_.end();) {
      if (it->deadline_seconds > now) {
        ++it;
        continue;
      }
      expired.push_back(std::move(*it));
      it = orphans_.erase(it);
    }
  }
  for (Orphan& orphan : expired) {
    FailGeneration(orphan.generation,
                   absl::UnavailableError(absl::StrCat(std::string(orphan.reason.message()),
                                                       "; no other replica became ready within ",
                                                       options_.recovery_timeout_seconds, " s")));
  }
}

void RequestFlow::FailGeneration(const std::shared_ptr<LiveGeneration>& generation,
                                 const absl::Status& reason) {
  if (generation->Fail(reason)) {
    Logger("coordinator")
        .warn("request {} failed: {}", generation->request().request_id,
              std::string(reason.message()));
    if (metrics_ != nullptr) metrics_->OnChoiceEnd("error");
    GenerationEnded();
  }
  CancelGeneration(generation);
}

void RequestFlow::CancelGeneration(const std::shared_ptr<LiveGeneration>& generation) {
  const bool was_running = generation->Silence();
  {
    std::lock_guard lock(mutex_);
    auto ids = by_generation_.find(generation.get());
    std::vector<uint64_t> open =
        ids == by_generation_.end() ? std::vector<uint64_t>() : ids->second;
    for (uint64_t id : open) {
      Submission& submission = submissions_.at(id);
      SendCancel(submission, id, -1);
      Forget(id, submission);
    }
    std::erase_if(orphans_, [&](const Orphan& o) { return o.generation == generation; });
  }
  if (!was_running) return;
  if (metrics_ != nullptr) metrics_->OnChoiceEnd("abort");
  GenerationEnded();
}

void RequestFlow::GenerationEnded() {
  std::lock_guard lock(mutex_);
  --in_flight_;
}

void RequestFlow::Drain() {
  std::lock_guard lock(mutex_);
  draining_ = true;
}

void RequestFlow::AbortAll(const absl::Status& reason) {
  std::vector<std::shared_ptr<LiveGeneration>> all;
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
    for (auto& [id, submission] : submissions_) all.push_back(submission.generation);
    for (Orphan& orphan : orphans_) all.push_back(orphan.generation);
  }
  for (const auto& generation : all) FailGeneration(generation, reason);
}

int64_t RequestFlow::requests_in_flight() const {
  std::lock_guard lock(mutex_);
  return in_flight_;
}

std::vector<ReplicaActivity> RequestFlow::activity() const {
  std::lock_guard lock(mutex_);
  std::vector<ReplicaActivity> all;
  for (const auto& [name, replica] : replicas_) {
    all.push_back(replica.activity);
    all.back().running_sequences = replica.load.running_sequences;
    all.back().queued_prompt_tokens = replica.load.queued_prompt_tokens;
  }
  return all;
}

}  // namespace tessera::coordinator

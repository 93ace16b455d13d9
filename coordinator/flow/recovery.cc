// What a request goes through when a replica is lost, drains, or refuses it, and when its stream
// breaks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/flow/request_flow.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

// A time-out is the queue's own if the queue's time was over, or nearly.
constexpr double kClockSlackSeconds = 0.05;

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

void AddName(const std::string& name, std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

// Whether a choice has ended, or has tokens, maybe of an earlier replica.
bool HasOutput(const LiveGeneration& generation) {
  const std::vector<OpenChoice> open = generation.OpenChoices();
  return std::ssize(open) < generation.request().choice_count ||
         std::any_of(open.begin(), open.end(),
                     [](const OpenChoice& choice) { return !choice.output_token_ids.empty(); });
}

}  // namespace

RequestFlow::Part RequestFlow::GoOn(const Part& before, absl::Status reason) {
  Part part;
  part.generation = before.generation;
  part.attempt = before.attempt + 1;
  part.retry = before.retry;
  part.link = before.link;
  part.choices = before.generation->OpenChoices();
  part.reason = std::move(reason);
  return part;
}

std::vector<RequestFlow::Part> RequestFlow::TakeWaiting() {
  if (CountOf(Part::State::kWaiting) == 0) return {};
  std::vector<uint64_t> ids;
  for (const auto& [id, part] : parts_) {
    if (part.state == Part::State::kWaiting) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  std::vector<Part> waiting;
  for (const uint64_t id : ids) waiting.push_back(Take(id));
  return waiting;
}

// What another replica would not mend ends the choice alone, where its request has others: they are
// answers all the same. Before any token it is the request's own, as of a refusal.
void RequestFlow::OnFault(const std::shared_ptr<LiveGeneration>& generation,
                          const v1::TokenEvent& event, const absl::Status& reason, double now) {
  const GenerationRequest& request = generation->request();
  bool alone = request.choice_count > 1 && !WorthRetrying(reason);
  if (alone && !HasOutput(*generation)) {
    std::lock_guard lock(mutex_);
    const auto part = parts_.find(event.submission_id());
    alone = part != parts_.end() && part->second.begun;
  }
  if (!alone) return Retry(event.submission_id(), reason);
  const EventOutcome outcome = generation->FailChoice(event.choice(), reason);
  if (!outcome.choice_finished) return;
  Logger("coordinator")
      .warn("choice {} of {} of request {} failed: {}", event.choice(), request.choice_count,
            request.request_id, std::string(reason.message()));
  if (metrics_ != nullptr) {
    metrics_->OnChoiceEnd({.finished_reason = "error",
                           .tokens = outcome.choice_tokens,
                           .decode_seconds = outcome.choice_decode_seconds});
    if (outcome.generation_finished && outcome.broken.ok())
      metrics_->OnRequestEnd(generation->Answered(now));
  }
  CloseChoice(event.submission_id(), /*tell_worker=*/false, event.choice());
  if (outcome.generation_finished) GenerationEnded();
}

// Another error of one choice ends its whole part: the worker gets a cancel, and the open choices
// continue elsewhere.
void RequestFlow::Retry(uint64_t submission_id, const absl::Status& reason) {
  Part next;
  bool overdue = false;
  {
    std::lock_guard lock(mutex_);
    auto found = parts_.find(submission_id);
    if (found == parts_.end() || found->second.state != Part::State::kRunning) return;
    NoteFailedHandOver(found->second, reason);
    SendCancel(found->second, submission_id, -1);
    const Part part = Take(submission_id);
    Unload(part);
    const bool waited = !part.begun && absl::IsDeadlineExceeded(reason);
    const bool late = waited && std::isfinite(BeginSecondsLeft(part)) &&
                      QueueSecondsLeft(part) > kClockSlackSeconds;
    overdue = waited && !late;
    next = GoOn(part, reason);
    const std::string& name = part.link->replica();
    next.retry.late |= late;
    next.not_begun = late;  // it goes on waiting as one that has just come
    if (!late) AddName(name, next.retry.refused_by);
    next.refused =
        !part.begun && (absl::IsUnavailable(reason) || absl::IsResourceExhausted(reason));
    if (!next.refused && !late) {
      ++next.retry.failures;
      next.retry.taken = true;
    }
    auto replica = replicas_.find(name);
    if (absl::IsUnavailable(reason) && replica != replicas_.end() &&
        replica->second.link == part.link) {
      replica->second.load.ready = false;
    }
    std::erase_if(next.choices, [&part](const OpenChoice& open) {
      const int32_t index = open.choice - part.first_choice;
      return index < 0 || index >= part.choice_count + part.later_choices;
    });
  }
  if (overdue) {
    FailOverdue(next.generation);
  } else if (next.not_begun || WorthRetrying(reason)) {
    Place(std::move(next));
  } else {
    FailGeneration(next.generation, reason);
  }
}

void RequestFlow::OnLinkLost(const std::shared_ptr<ReplicaLink>& link, const absl::Status& reason) {
  std::vector<Part> parts;
  bool served = false;
  {
    std::lock_guard lock(mutex_);
    auto replica = replicas_.find(link->replica());
    // A link that never became ready, or has a successor, takes its replica's figures nowhere.
    served = replica != replicas_.end() && replica->second.link == link;
    if (served) replicas_.erase(replica);
    std::vector<uint64_t> ids;
    for (const auto& [id, part] : parts_) {
      if (part.state == Part::State::kRunning && part.link == link) ids.push_back(id);
    }
    std::sort(ids.begin(), ids.end());  // those that came first are placed first
    std::map<LiveGeneration*, size_t> places;
    for (const uint64_t id : ids) {
      const Part lost = Take(id);
      Unload(lost);
      Part next = GoOn(
          lost, absl::UnavailableError(absl::StrCat("replica ", link->replica(),
                                                    " was lost: ", std::string(reason.message()))));
      ++next.retry.failures;
      next.retry.taken = true;
      // All that is open of a generation goes on together.
      const auto [place, added] = places.emplace(lost.generation.get(), parts.size());
      if (added) {
        parts.push_back(std::move(next));
        continue;
      }
      Part& first = parts[place->second];
      next.attempt = std::max(next.attempt, first.attempt);
      next.retry.failures = std::max(next.retry.failures, first.retry.failures);
      first = std::move(next);
    }
  }
  EndReservations(link);
  if (metrics_ != nullptr && served) metrics_->OnReplicaLost(link->replica());
  if (!parts.empty()) {
    Logger("coordinator")
        .warn("replica {} was lost ({}); {} requests continue on other replicas", link->replica(),
              std::string(reason.message()), parts.size());
  }
  for (Part& part : parts) Place(std::move(part));
}

void RequestFlow::Place(Part part) {
  if (part.choices.empty()) return;
  if (part.retry.failures >= options_.max_attempts) {
    FailGeneration(part.generation, part.reason);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    if (part.generation->ended()) return;
    const std::vector<std::string>& refused_by = part.retry.refused_by;
    const bool begun = std::any_of(part.choices.begin(), part.choices.end(),
                                   [](const auto& c) { return !c.output_token_ids.empty(); });
    const Left left = part.not_begun ? Left::kAll : begun ? Left::kOutput : Left::kAllAlone;
    const Servers servers = Route(part.generation->request(), refused_by, left);
    Replica* const replica = servers.prefill;
    const bool full = absl::IsResourceExhausted(part.reason);
    // Nothing has changed there: asking again at once would only be refused again.
    const bool would_refuse_again = replica != nullptr && (part.refused || full) &&
                                    std::find(refused_by.begin(), refused_by.end(),
                                              replica->link->replica()) != refused_by.end();
    if (replica != nullptr && part.not_begun) return Begin(servers, std::move(part));
    if (replica != nullptr && !would_refuse_again) {
      if (replica->link != part.link) {
        Logger("coordinator")
            .info("request {} continues on replica {}, attempt {}: {}",
                  part.generation->request().request_id, replica->link->replica(), part.attempt,
                  std::string(part.reason.message()));
        if (metrics_ != nullptr) metrics_->OnMigration();
      }
      pairs_.NoteRouted(servers.pair);
      Resume(*replica, std::move(part));
      return;
    }
    const bool give_up = would_refuse_again && full && !(part.refused && part.retry.taken);
    if (!give_up) {
      AwaitReplica(std::move(part), would_refuse_again);
      return;
    }
  }
  FailGeneration(part.generation, part.reason);
}

// With mutex_ held.
void RequestFlow::AwaitReplica(Part part, bool some_ready) {
  const double now = options_.now_seconds();
  if (part.retry.deadline_seconds == 0) {
    part.retry.deadline_seconds = now + options_.recovery_timeout_seconds;
    Logger("coordinator")
        .warn("request {} waits for a replica, for at most {} s: {}",
              part.generation->request().request_id, options_.recovery_timeout_seconds,
              std::string(part.reason.message()));
  }
  part.not_before_seconds = some_ready ? now + options_.refused_retry_seconds : 0;
  part.state = Part::State::kWaiting;
  Add(next_submission_id_++, std::move(part));
}

std::vector<int32_t> RequestFlow::StopIds(const GenerationRequest& request) const {
  std::vector<int32_t> ids = request.stop_token_ids;
  if (!request.ignore_eos || !request.grammar.empty())
    ids.insert(ids.end(), options_.eos_token_ids.begin(), options_.eos_token_ids.end());
  return ids;
}

std::vector<std::shared_ptr<LiveGeneration>> RequestFlow::StreamsOf(
    const GenerationRequest& again) const {
  std::vector<std::shared_ptr<LiveGeneration>> streams;
  if (!again.resumes) return streams;
  for (const auto& [id, part] : parts_) {
    const GenerationRequest& request = part.generation->request();
    const bool same = request.answer_id == again.answer_id && request.client == again.client;
    if (same && std::find(streams.begin(), streams.end(), part.generation) == streams.end())
      streams.push_back(part.generation);
  }
  return streams;
}

std::vector<std::shared_ptr<ReplicaLink>> RequestFlow::links() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<ReplicaLink>> links;
  for (const auto& [name, replica] : replicas_) links.push_back(replica.link);
  return links;
}

double RequestFlow::SecondsSinceReady() const {
  std::lock_guard lock(mutex_);
  const bool changing = options_.changing_plan && options_.changing_plan();
  if (changing || (options_.recovering && options_.recovering())) return 0;
  return options_.now_seconds() - ready_seconds_;
}

double RequestFlow::BeginSecondsLeft(const Part& part) const {
  const std::optional<double>& within = part.generation->request().begin_within_seconds;
  if (!within.has_value() || part.retry.late || part.retry.taken)
    return std::numeric_limits<double>::infinity();
  return part.generation->arrival_seconds() + *within - options_.now_seconds();
}

double RequestFlow::QueueSecondsLeft(const Part& part) const {
  const LiveGeneration& generation = *part.generation;
  if (options_.queue_timeout_seconds <= 0 || part.retry.taken || !generation.request().leads_group)
    return std::numeric_limits<double>::infinity();
  return generation.arrival_seconds() + options_.queue_timeout_seconds - options_.now_seconds();
}

void RequestFlow::FailOverdue(const std::shared_ptr<LiveGeneration>& generation) {
  const absl::Status reason = absl::UnavailableError(
      absl::StrCat("no replica began the request within ", options_.queue_timeout_seconds,
                   " s (--queue-timeout): the server is busy, try again later"));
  if (FailGeneration(generation, reason) && metrics_ != nullptr)
    metrics_->OnRefused(absl::StatusCode::kDeadlineExceeded);
}

std::vector<std::shared_ptr<LiveGeneration>> RequestFlow::TakeOverdue() {
  std::vector<std::shared_ptr<LiveGeneration>> overdue;
  const int64_t idle = CountOf(Part::State::kWaiting) + CountOf(Part::State::kAsking);
  if (options_.queue_timeout_seconds <= 0 || idle == 0) return overdue;
  std::vector<uint64_t> waiting;
  for (const auto& [id, part] : parts_) {
    if (part.state == Part::State::kRunning || QueueSecondsLeft(part) > 0) continue;
    overdue.push_back(part.generation);
    if (part.state == Part::State::kWaiting) waiting.push_back(id);
  }
  for (const uint64_t id : waiting) Take(id);
  return overdue;
}

void RequestFlow::Tick() {
  EndReservations(nullptr);
  std::vector<Part> expired, due;
  std::vector<std::shared_ptr<LiveGeneration>> overdue;
  {
    std::lock_guard lock(mutex_);
    overdue = TakeOverdue();
    const double now = options_.now_seconds();
    const bool some_ready = std::any_of(replicas_.begin(), replicas_.end(),
                                        [](const auto& entry) { return entry.second.load.ready; });
    const bool recovering = !some_ready && options_.recovering && options_.recovering();
    for (Part& part : TakeWaiting()) {
      if (part.retry.deadline_seconds <= now && (!recovering || part.bounded)) {
        expired.push_back(std::move(part));
      } else if (some_ready && part.not_before_seconds <= now) {
        due.push_back(std::move(part));
      } else {
        Add(next_submission_id_++, std::move(part));
      }
    }
  }
  for (const auto& generation : overdue) FailOverdue(generation);
  for (Part& part : due) {
    part.retry.refused_by.clear();
    Place(std::move(part));
  }
  for (Part& part : expired) {
    FailGeneration(part.generation,
                   absl::UnavailableError(absl::StrCat(std::string(part.reason.message()),
                                                       "; no other replica became ready in time")));
  }
}

}  // namespace tessera::coordinator

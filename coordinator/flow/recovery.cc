// What a request goes through when a replica is lost, drains, or refuses it.
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

}  // namespace

// An error of one choice ends its whole submission: the worker gets a cancel, and the open choices
// continue elsewhere.
void RequestFlow::Retry(uint64_t submission_id, const absl::Status& reason) {
  Orphan orphan;
  bool overdue = false;
  {
    std::lock_guard lock(mutex_);
    auto found = submissions_.find(submission_id);
    if (found == submissions_.end()) return;
    Submission& submission = found->second;
    NoteFailedHandOver(submission, reason);
    const bool waited = !submission.begun && absl::IsDeadlineExceeded(reason);
    const bool late =
        waited && std::isfinite(BeginSecondsLeft(*submission.generation, submission.trouble)) &&
        QueueSecondsLeft(*submission.generation, submission.trouble) > kClockSlackSeconds;
    overdue = waited && !late;
    orphan.generation = submission.generation;
    orphan.last_link = submission.link;
    orphan.attempt = submission.attempt + 1;
    orphan.trouble = submission.trouble;
    orphan.reason = reason;
    const std::string& name = submission.link->replica();
    orphan.trouble.late |= late;
    orphan.fresh = late;  // it goes on waiting as one that has just come
    if (!late) AddName(name, orphan.trouble.refused_by);
    orphan.refused =
        !submission.begun && (absl::IsUnavailable(reason) || absl::IsResourceExhausted(reason));
    if (!orphan.refused && !late) {
      ++orphan.trouble.failures;
      orphan.trouble.taken = true;
    }
    auto replica = replicas_.find(name);
    if (absl::IsUnavailable(reason) && replica != replicas_.end() &&
        replica->second.link == submission.link) {
      replica->second.load.ready = false;
    }
    for (OpenChoice& open : submission.generation->OpenChoices()) {
      const int32_t index = open.choice - submission.first_choice;
      const int32_t count = submission.choice_count + submission.later_choices;
      if (index >= 0 && index < count) orphan.choices.push_back(std::move(open));
    }
    SendCancel(submission, submission_id, -1);
    Forget(submission_id, submission);
  }
  if (overdue) {
    FailOverdue(orphan.generation);
  } else if (orphan.fresh || WorthRetrying(reason)) {
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
    std::vector<uint64_t> ids;
    for (const auto& [id, submission] : submissions_) {
      if (submission.link == link) ids.push_back(id);
    }
    std::sort(ids.begin(), ids.end());  // those that came first are placed first
    std::map<LiveGeneration*, size_t> places;
    for (const uint64_t id : ids) {
      const Submission& submission = submissions_.at(id);
      const auto [place, added] = places.emplace(submission.generation.get(), orphans.size());
      if (added) orphans.emplace_back();
      Orphan& orphan = orphans[place->second];
      orphan.generation = submission.generation;
      orphan.last_link = link;
      orphan.attempt = std::max(orphan.attempt, submission.attempt + 1);
      const int32_t failures = std::max(orphan.trouble.failures, submission.trouble.failures + 1);
      orphan.trouble = submission.trouble;
      orphan.trouble.failures = failures;
      orphan.trouble.taken = true;
      orphan.reason = absl::UnavailableError(
          absl::StrCat("replica ", link->replica(), " was lost: ", std::string(reason.message())));
    }
    for (uint64_t id : ids) Forget(id, submissions_.at(id));
    for (Orphan& orphan : orphans) orphan.choices = orphan.generation->OpenChoices();
  }
  EndReservations(link);
  if (metrics_ != nullptr && served) metrics_->OnReplicaLost(link->replica());
  if (!orphans.empty()) {
    Logger("coordinator")
        .warn("replica {} was lost ({}); {} requests continue on other replicas", link->replica(),
              std::string(reason.message()), orphans.size());
  }
  for (Orphan& orphan : orphans) Place(std::move(orphan));
}

void RequestFlow::Place(Orphan orphan) {
  if (orphan.choices.empty()) return;
  if (orphan.trouble.failures >= options_.max_attempts) {
    FailGeneration(orphan.generation, orphan.reason);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    if (orphan.generation->ended()) return;
    const std::vector<std::string>& refused_by = orphan.trouble.refused_by;
    const bool begun = std::any_of(orphan.choices.begin(), orphan.choices.end(),
                                   [](const auto& c) { return !c.output_token_ids.empty(); });
    const Left left = orphan.fresh ? Left::kAll : begun ? Left::kOutput : Left::kAllAlone;
    const Servers servers = Route(orphan.generation->request(), refused_by, left);
    Replica* const replica = servers.prefill;
    const bool full = absl::IsResourceExhausted(orphan.reason);
    // Nothing has changed there: asking again at once would only be refused again.
    const bool would_refuse_again = replica != nullptr && (orphan.refused || full) &&
                                    std::find(refused_by.begin(), refused_by.end(),
                                              replica->link->replica()) != refused_by.end();
    if (replica != nullptr && orphan.fresh)
      return Begin(servers, orphan.generation, orphan.attempt, orphan.trouble);
    if (replica != nullptr && !would_refuse_again) {
      if (replica->link != orphan.last_link) {
        Logger("coordinator")
            .info("request {} continues on replica {}, attempt {}: {}",
                  orphan.generation->request().request_id, replica->link->replica(), orphan.attempt,
                  std::string(orphan.reason.message()));
        if (metrics_ != nullptr) metrics_->OnMigration();
      }
      pairs_.NoteRouted(servers.pair);
      Submit(*replica, orphan);
      return;
    }
    const bool give_up = would_refuse_again && full && !(orphan.refused && orphan.trouble.taken);
    if (!give_up) {
      AwaitReplica(std::move(orphan), would_refuse_again);
      return;
    }
  }
  FailGeneration(orphan.generation, orphan.reason);
}

// With mutex_ held.
void RequestFlow::AwaitReplica(Orphan orphan, bool some_ready) {
  const double now = options_.now_seconds();
  if (orphan.trouble.deadline_seconds == 0) {
    orphan.trouble.deadline_seconds = now + options_.recovery_timeout_seconds;
    Logger("coordinator")
        .warn("request {} waits for a replica, for at most {} s: {}",
              orphan.generation->request().request_id, options_.recovery_timeout_seconds,
              std::string(orphan.reason.message()));
  }
  orphan.not_before_seconds = some_ready ? now + options_.refused_retry_seconds : 0;
  orphans_.push_back(std::move(orphan));
}

double RequestFlow::BeginSecondsLeft(const LiveGeneration& generation,
                                     const Trouble& trouble) const {
  const std::optional<double>& within = generation.request().begin_within_seconds;
  if (!within.has_value() || trouble.late || trouble.taken)
    return std::numeric_limits<double>::infinity();
  return generation.arrival_seconds() + *within - options_.now_seconds();
}

double RequestFlow::QueueSecondsLeft(const LiveGeneration& generation,
                                     const Trouble& trouble) const {
  if (options_.queue_timeout_seconds <= 0 || trouble.taken || !generation.request().leads_group)
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
  for (const auto& [id, reservation] : reservations_) {
    if (QueueSecondsLeft(*reservation.generation, reservation.trouble) <= 0)
      overdue.push_back(reservation.generation);
  }
  std::erase_if(orphans_, [&](const Orphan& orphan) {
    if (QueueSecondsLeft(*orphan.generation, orphan.trouble) > 0) return false;
    overdue.push_back(orphan.generation);
    return true;
  });
  return overdue;
}

void RequestFlow::Tick() {
  EndReservations(nullptr);
  std::vector<Orphan> expired, due;
  std::vector<std::shared_ptr<LiveGeneration>> overdue;
  {
    std::lock_guard lock(mutex_);
    overdue = TakeOverdue();
    const double now = options_.now_seconds();
    const bool some_ready = std::any_of(replicas_.begin(), replicas_.end(),
                                        [](const auto& entry) { return entry.second.load.ready; });
    const bool recovering = !some_ready && options_.recovering && options_.recovering();
    std::deque<Orphan> waiting;
    for (Orphan& orphan : orphans_) {
      if (orphan.trouble.deadline_seconds <= now && (!recovering || orphan.bounded)) {
        expired.push_back(std::move(orphan));
      } else if (some_ready && orphan.not_before_seconds <= now) {
        due.push_back(std::move(orphan));
      } else {
        waiting.push_back(std::move(orphan));
      }
    }
    std::swap(orphans_, waiting);
  }
  for (const auto& generation : overdue) FailOverdue(generation);
  for (Orphan& orphan : due) {
    orphan.trouble.refused_by.clear();
    Place(std::move(orphan));
  }
  for (Orphan& orphan : expired) {
    FailGeneration(orphan.generation,
                   absl::UnavailableError(absl::StrCat(std::string(orphan.reason.message()),
                                                       "; no other replica became ready in time")));
  }
}

}  // namespace tessera::coordinator

#include "worker/formation/group_executor.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "proto/activations.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/step/step_wire.h"

namespace tessera::worker {
namespace {

// A descriptor is small, and a member always reads: one that does not take it is stuck.
constexpr double kSendSeconds = 30;
// Logprobs of many rows are the largest answer.
constexpr int64_t kMaxResultBytes = int64_t{256} << 20;
// How often links and deadlines are looked at that poll(2) does not report.
constexpr std::chrono::milliseconds kLookAgain(200);
// How late the stage's thread notices that a step which it enqueued has ended, and how long it lets
// the next one come before it waits for that end alone.
constexpr std::chrono::microseconds kLookForEnd(200);
constexpr std::chrono::milliseconds kNextStep(50);

}  // namespace

namespace {

// The first stage does not see that the last one drafts behind each step.
bool DraftsInLastStage(const v1::ConfigureRequest& request, const FormationPlace& place) {
  return place.leader != place.sampler &&
         (request.model().draft_head().used() || request.model().has_draft_model());
}

}  // namespace

GroupOptions GroupOptionsOf(const v1::ConfigureRequest& request, const Formation& formation) {
  const FormationPlace& place = formation.place();
  GroupOptions options;
  options.fence = request.fence();
  for (const int member : place.control) {
    if (member == place.sampler) options.sampler = static_cast<int>(options.members.size());
    options.members.push_back({MemberName(request, member), member, formation.control(member)});
  }
  options.bulk = formation.bulk();
  options.waits = formation.device_waits();
  options.ahead = request.role() != v1::REPLICA_ROLE_PREFILL &&
                  request.role() != v1::REPLICA_ROLE_DECODE &&
                  !DraftsInLastStage(request, formation.place());
  options.lanes = request.micro_batches();
  if (options.lanes > 0) return options;
  for (const v1::Peer& peer : request.peers()) {
    options.lanes = std::max(options.lanes, peer.stage() + 1);
  }
  return options;
}

void LogStepsAhead(const v1::ConfigureRequest& request, const Formation& formation,
                   const GroupExecutor& executor) {
  const DeviceHops* const hops = formation.hops().hops();
  if (executor.runs_ahead() && hops != nullptr) {
    const int64_t rows =
        DeviceHops::kMaxPieces * hops->piece_bytes / (request.model().hidden() * kWireElementBytes);
    return Logger("worker").info(
        "steps: the next one is enqueued while one runs, where it has up to {} rows (more of them "
        "go "
        "from stage to stage through the hosts)",
        rows);
  }
  if (executor.runs_ahead())
    return Logger("worker").info("steps: the next one is enqueued while one runs");
  const bool has_stages = formation.place().leader != formation.place().sampler;
  std::string why = "a head or a model drafts behind each";  // what is left
  if (executor.lanes() > 1 && !has_stages) {
    why = "several batches take turns";
  } else if (has_stages && hops == nullptr) {
    why =
        StrCat("rows go from stage to stage through the hosts (", formation.hops().why_not(), ")");
  } else if (!has_stages && formation.sums() == nullptr) {
    why = "the ranks' devices map no memory for their sums";
  } else if (!GroupOptionsOf(request, formation).ahead &&
             !DraftsInLastStage(request, formation.place())) {
    why = "keys and values go to or come from other replicas";
  }
  Logger("worker").info("steps: one at a time, as {}", why);
}

GroupExecutor::GroupExecutor(GroupOptions options, std::unique_ptr<Stage> stage)
    : options_(std::move(options)),
      stage_(std::move(stage)),
      reader_([this] { ReadMembers(); }),
      stage_thread_([this] { RunStage(); }) {}

GroupExecutor::~GroupExecutor() {
  Abort(absl::UnavailableError("the replica is being shut down"));
  stage_thread_.join();
  reader_.join();
}

void GroupExecutor::SetWake(std::function<void()> wake) {
  std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

bool GroupExecutor::Ready() {
  std::lock_guard lock(mutex_);
  return !done_.empty() || !broken_.ok() || (!in_flight_.empty() && in_flight_.front().enqueued);
}

bool GroupExecutor::MayRunAhead() const {
  std::lock_guard lock(mutex_);
  return runs_ahead() && broken_.ok() && failure_.ok() && in_flight_.size() == 1 &&
         in_flight_.front().feeds;
}

absl::Status GroupExecutor::Broken() {
  std::lock_guard lock(mutex_);
  return broken_;
}

void GroupExecutor::Abort(const absl::Status& reason) {
  std::function<void()> wake;
  {
    std::lock_guard lock(mutex_);
    if (broken_.ok()) broken_ = reason;
    wake = wake_;
  }
  for (const GroupMember& member : options_.members) member.control->Shutdown(reason);
  for (kernels::Link* link : options_.bulk) link->Shutdown(reason);
  for (kernels::DeviceSums* wait : options_.waits) wait->Abort(reason);
  changed_.notify_all();
  if (wake) wake();
}

absl::Status GroupExecutor::Begin(const StepWork& work) {
  if (absl::Status reason = Broken(); !reason.ok()) return reason;
  const bool ahead = runs_ahead() && !draws_elsewhere() && stage_->RunsAhead(work);
  // The stage's thread runs what cannot be enqueued, when nothing else is under way.
  while (!ahead && Collect()) {
  }
  const bool sends_masks = options_.sampler >= 0 && work.make_masks != nullptr;
  StepWork own = work;
  if (sends_masks) own.make_masks = nullptr;
  WriteDescriptor(work, &descriptor_);
  descriptor_.set_step(++steps_);
  *descriptor_.mutable_fence() = options_.fence;
  bytes_.clear();
  descriptor_.AppendToString(&bytes_);
  {
    Pending pending = {steps_, own,
                       Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(options_.step_seconds))};
    pending.feeds = runs_ahead() && !sends_masks && stage_->FeedsNext(work);
    std::lock_guard lock(mutex_);
    if (!ahead) to_run_.push_back(pending);
    in_flight_.push_back(pending);
  }
  changed_.notify_all();
  absl::Status begun = SendStep(work, sends_masks);
  if (ahead && begun.ok()) begun = stage_->Enqueue(work);
  std::lock_guard lock(mutex_);
  if (ahead) in_flight_.back().enqueued = begun.ok();
  failure_.Update(begun);  // Take says it
  return absl::OkStatus();
}

absl::Status GroupExecutor::SendStep(const StepWork& work, bool sends_masks) {
  absl::Status sent;
  for (int i = 0; i < std::ssize(options_.members) && sent.ok(); ++i) {
    const bool lacks_masks = sends_masks && i == options_.sampler;
    sent = SendBytes(i, lacks_masks ? FrameType::kMasklessStep : FrameType::kStepDescriptor);
  }
  return sends_masks && sent.ok() ? SendMasks(work) : sent;
}

absl::Status GroupExecutor::SendMasks(const StepWork& work) {
  work.MakeMasks();  // all stages run the step meanwhile
  WriteMasks(work, &masks_);
  masks_.set_step(steps_);
  bytes_.clear();
  masks_.AppendToString(&bytes_);
  return SendBytes(options_.sampler, FrameType::kStepMasks);
}

absl::Status GroupExecutor::SendBytes(int member, FrameType type) {
  return options_.members[member].control->Send(
      static_cast<uint16_t>(type),
      {reinterpret_cast<const std::byte*>(bytes_.data()), bytes_.size()}, kSendSeconds);
}

void GroupExecutor::Send(int peer, const v1::KvNote& note) {
  const std::string bytes = note.SerializeAsString();
  for (const GroupMember& member : options_.members) {
    if (member.peer != peer) continue;
    const absl::Status sent = member.control->Send(
        static_cast<uint16_t>(FrameType::kKvNote),
        {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, kSendSeconds);
    std::lock_guard lock(mutex_);
    failure_.Update(sent);
  }
}

void GroupExecutor::SetListener(Listener listener) {
  std::lock_guard lock(listener_mutex_);
  listener_ = std::move(listener);
}

bool GroupExecutor::Collect() {
  size_t samples = 0;
  {
    std::lock_guard lock(mutex_);
    if (in_flight_.empty() || !in_flight_.front().enqueued) return false;
    in_flight_.front().enqueued = false;
    samples = in_flight_.front().work.samples.size();
  }
  StepOutcome outcome;
  const absl::Status status = stage_->Collect(samples, &outcome);
  if (status.ok()) {
    Finish(std::move(outcome));
  } else {
    std::lock_guard lock(mutex_);
    failure_.Update(status);
  }
  return true;
}

absl::Status GroupExecutor::Take(StepOutcome* outcome) {
  std::unique_lock lock(mutex_);
  const bool is_there = !done_.empty();
  lock.unlock();
  if (!is_there) Collect();
  lock.lock();
  changed_.wait(lock, [this] { return !done_.empty() || (!broken_.ok() && stage_ended_); });
  if (done_.empty()) return broken_;
  *outcome = std::move(done_.front());
  done_.pop_front();
  return absl::OkStatus();
}

void GroupExecutor::RunStage() {
  std::unique_lock lock(mutex_);
  int enqueued = 0;
  while (AwaitWork(lock, enqueued)) {
    absl::Status status;
    if (to_run_.empty()) {
      lock.unlock();
      status = CollectTo(0, &enqueued);
    } else {
      const StepWork work = to_run_.front().work;
      to_run_.pop_front();
      lock.unlock();
      status = RunPart(work, &enqueued);
    }
    lock.lock();
    failure_.Update(status);
  }
  stage_ended_ = true;
  changed_.notify_all();
}

bool GroupExecutor::AwaitWork(std::unique_lock<std::mutex>& lock, int enqueued) {
  const auto comes = [this] { return !broken_.ok() || (failure_.ok() && !to_run_.empty()); };
  const Clock::time_point until = Clock::now() + kNextStep;
  while (!comes()) {
    if (enqueued == 0 || !failure_.ok()) {
      changed_.wait(lock, comes);
    } else {
      lock.unlock();
      const bool ended = stage_->Ended();
      lock.lock();
      if (ended || Clock::now() > until) break;
      changed_.wait_for(lock, kLookForEnd, comes);
    }
  }
  return broken_.ok();
}

absl::Status GroupExecutor::RunPart(const StepWork& work, int* enqueued) {
  absl::Status status;
  if (runs_ahead() && draws_elsewhere() && stage_->RunsAhead(work)) {
    status = stage_->Enqueue(work);
    if (!status.ok()) return status;
    ++*enqueued;
    return CollectTo(1, enqueued);
  }
  status = CollectTo(0, enqueued);
  StepOutcome outcome;
  if (status.ok()) status = stage_->Run(work, &outcome);
  if (status.ok() && !draws_elsewhere()) Finish(std::move(outcome));
  return status;
}

absl::Status GroupExecutor::CollectTo(int left, int* enqueued) {
  StepOutcome nothing;
  absl::Status status;
  for (; status.ok() && *enqueued > left; --*enqueued) status = stage_->Collect(0, &nothing);
  return status;
}

void GroupExecutor::Finish(StepOutcome outcome) {
  std::function<void()> wake;
  {
    std::lock_guard lock(mutex_);
    in_flight_.pop_front();
    done_.push_back(std::move(outcome));
    wake = wake_;
  }
  changed_.notify_all();
  if (wake) wake();
}

void GroupExecutor::ReadMembers() {
  std::vector<pollfd> sockets(options_.members.size());
  absl::Status failure;
  while (failure.ok() && Broken().ok()) {
    for (size_t i = 0; i < sockets.size(); ++i) {
      sockets[i] = {options_.members[i].control->socket(), POLLIN, 0};
    }
    poll(sockets.data(), sockets.size(), kLookAgain.count());
    failure = OwnFailure();
    for (size_t i = 0; i < sockets.size() && failure.ok(); ++i) {
      failure = options_.members[i].control->status();
      if (failure.ok() && sockets[i].revents != 0) failure = ReadFrom(i);
    }
  }
  if (!failure.ok()) Fail(failure);
}

absl::Status GroupExecutor::OwnFailure() {
  std::lock_guard lock(mutex_);
  if (!failure_.ok() || in_flight_.empty() || Clock::now() < in_flight_.front().deadline) {
    return failure_;
  }
  return absl::DeadlineExceededError(
      StrCat(options_.sampler < 0 ? "this worker" : options_.members[options_.sampler].name,
             " did not answer a step within ", options_.step_seconds, " s"));
}

absl::Status GroupExecutor::ReadFrom(size_t member) {
  const GroupMember& from = options_.members[member];
  std::string payload;
  const auto type = from.control->ReceiveAny(kMaxResultBytes, &payload, kSendSeconds);
  if (!type.ok()) return type.status();
  if (*type == static_cast<uint16_t>(FrameType::kKvNote)) return TakeNote(from, payload);
  v1::StepResult result;
  if (*type != static_cast<uint16_t>(FrameType::kStepResult) || !result.ParseFromString(payload)) {
    return absl::InvalidArgumentError(
        StrCat(from.name, " sent a frame of type ", *type, " that is no step result"));
  }
  Pending step;
  {
    std::lock_guard lock(mutex_);
    if (!in_flight_.empty()) step = in_flight_.front();
  }
  const bool answers = static_cast<int>(member) == options_.sampler &&
                       step.work.arrays != nullptr && result.step() == step.number;
  if (result.error_code() == 0 && !answers) {
    return absl::FailedPreconditionError(
        StrCat(from.name, " answered step ", result.step(), ", which was not sent to it"));
  }
  StepOutcome outcome;
  const absl::Status status =
      ReadResult(std::move(result), step.work.samples.size(), step.work.scores.size(), &outcome);
  if (!status.ok()) {
    return absl::Status(status.code(),
                        StrCat(from.name, ": ", std::string(StdView(status.message()))));
  }
  Finish(std::move(outcome));
  return absl::OkStatus();
}

absl::Status GroupExecutor::TakeNote(const GroupMember& from, const std::string& payload) {
  v1::KvNote note;
  if (!note.ParseFromString(payload)) {
    return absl::InvalidArgumentError(from.name + " sent a note about KV that cannot be read");
  }
  std::lock_guard lock(listener_mutex_);
  if (listener_) listener_(from.peer, note);
  return absl::OkStatus();
}

// A member that fails says why on its control link before it closes it; that reason is better than
// what its neighbours see.
void GroupExecutor::Fail(const absl::Status& status) {
  absl::Status reason = status;
  for (size_t i = 0; i < options_.members.size(); ++i) {
    v1::StepResult result;
    std::string payload;
    const auto type = options_.members[i].control->ReceiveAny(kMaxResultBytes, &payload, 0.05);
    if (!type.ok() || *type != static_cast<uint16_t>(FrameType::kStepResult)) continue;
    if (!result.ParseFromString(payload) || result.error_code() == 0) continue;
    reason = absl::Status(static_cast<absl::StatusCode>(result.error_code()),
                          StrCat(options_.members[i].name, ": ", result.error()));
    break;
  }
  Abort(absl::UnavailableError(StrCat("the replica's workers no longer run steps together: ",
                                      std::string(StdView(reason.message())))));
}

}  // namespace tessera::worker

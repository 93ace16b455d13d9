#include "worker/formation/member.h"

#include <poll.h>

#include <chrono>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

constexpr int64_t kMaxDescriptorBytes = int64_t{256} << 20;
// A wait for the next step that ends without one begins again: idle replicas are no failure.
constexpr double kIdleSeconds = 5;
constexpr double kSendSeconds = 30;
// The leader makes masks as soon as it has sent the step.
constexpr double kMasksSeconds = 60;
// How long the next step may take to come while one runs: then that one's end is waited for, so
// that the leader hears of a failure. One that comes later still runs, only not ahead.
constexpr int kNextStepMilliseconds = 50;
// How late, at most, an end is noticed, which counts as the stage's time; one that answers looks
// all the time at first.
constexpr timespec kLook = {.tv_sec = 0, .tv_nsec = 200'000};
constexpr timespec kLookToAnswer = {.tv_sec = 0, .tv_nsec = 50'000};
constexpr timespec kDoNotWait = {};
constexpr double kLookAllTheTimeSeconds = 2e-3;

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Member::Member(MemberOptions options, std::shared_ptr<LoadedShare> share,
               std::unique_ptr<Formation> formation, std::unique_ptr<Stage> stage)
    : options_(std::move(options)),
      share_(std::move(share)),
      formation_(std::move(formation)),
      stage_(std::move(stage)),
      kv_part_(options_.kv_part == nullptr ? nullptr
                                           : options_.kv_part([this](const v1::KvNote& note) {
                                               Answer(FrameType::kKvNote, note).IgnoreError();
                                             })),
      step_(options_.limits, options_.kv_blocks, options_.block_tokens),
      last_step_seconds_(NowSeconds()),
      thread_([this] { Run(); }) {}

void Member::Stop(const absl::Status& reason) {
  std::lock_guard once(stop_mutex_);
  if (!thread_.joinable()) return;
  ShutDown(reason);
  thread_.join();
}

void Member::ShutDown(const absl::Status& reason) {
  options_.control->Shutdown(reason);
  for (kernels::Link* link : options_.bulk) link->Shutdown(reason);
  for (kernels::DeviceSums* wait : formation_->device_waits()) wait->Abort(reason);
}

double Member::idle_seconds() const { return NowSeconds() - last_step_seconds_; }

void Member::Run() {
  absl::Status status;
  std::string payload;
  while (status.ok()) {
    if (!enqueued_.empty() && !HearsSoon()) {
      status = Collect(0);
      if (!status.ok()) TellFailure(status);
    } else {
      status = TakeFrame(&payload);
    }
  }
  ended_ = true;
  ShutDown(status);
  if (options_.on_end) options_.on_end(status);
}

absl::Status Member::TakeFrame(std::string* payload) {
  const auto type = options_.control->ReceiveAny(kMaxDescriptorBytes, payload, kIdleSeconds);
  if (absl::IsDeadlineExceeded(type.status()) && options_.control->status().ok())
    return absl::OkStatus();
  if (!type.ok()) return type.status();
  switch (static_cast<FrameType>(*type)) {
    case FrameType::kKvNote: return TakeNote(*payload);
    case FrameType::kStepDescriptor: return RunStep(*payload, false);
    case FrameType::kMasklessStep: return RunStep(*payload, true);
    default: return absl::InvalidArgumentError(StrCat("the leader sent a frame of type ", *type));
  }
}

bool Member::HearsSoon() const {
  const double began = NowSeconds(), until = began + 1e-3 * kNextStepMilliseconds;
  pollfd socket = {options_.control->socket(), POLLIN, 0};
  for (double now = began; now < until && !stage_->Ended(); now = NowSeconds()) {
    const timespec* wait = stage_->samples() ? &kLookToAnswer : &kLook;
    if (stage_->samples() && now < began + kLookAllTheTimeSeconds) wait = &kDoNotWait;
    if (ppoll(&socket, 1, wait, nullptr) > 0) return true;
  }
  return false;
}

absl::Status Member::Collect(int left) {
  absl::Status status;
  while (status.ok() && std::ssize(enqueued_) > left) {
    const Enqueued step = enqueued_.front();
    enqueued_.pop_front();
    status = stage_->Collect(step.samples, &outcome_);
    if (!status.ok()) return status;
    last_step_seconds_ = NowSeconds();
    status = AnswerStep(step.number);
  }
  return status;
}

absl::Status Member::RunStep(const std::string& payload, bool masks_follow) {
  absl::Status status;
  if (!step_.descriptor()->ParseFromString(payload)) {
    status = absl::InvalidArgumentError("the leader sent a step descriptor that cannot be read");
  } else if (step_.descriptor()->fence().plan_epoch() != options_.fence.plan_epoch()) {
    status = absl::FailedPreconditionError(
        StrCat("a step of plan epoch ", step_.descriptor()->fence().plan_epoch(),
               "; this worker is at epoch ", options_.fence.plan_epoch()));
  } else {
    status = step_.Check();
  }
  if (status.ok()) status = DoStep(masks_follow);
  return status.ok() ? status : TellFailure(status);
}

absl::Status Member::AnswerStep(uint64_t number) {
  if (!stage_->samples()) return absl::OkStatus();
  v1::StepResult result;
  WriteResult(number, std::move(outcome_), &result);
  return Answer(FrameType::kStepResult, result);
}

absl::Status Member::DoStep(bool masks_follow) {
  StepWork work = step_.work();
  const uint64_t number = step_.descriptor()->step();
  if (!masks_follow && stage_->RunsAhead(work)) {
    absl::Status status = stage_->Enqueue(work);
    if (!status.ok()) return status;
    enqueued_.push_back({number, work.samples.size()});
    return Collect(1);
  }
  absl::Status masks_taken, status = Collect(0);
  const std::function<void()> take_masks = [&] { masks_taken = TakeMasks(); };
  if (masks_follow) work.make_masks = &take_masks;
  if (status.ok()) status = stage_->Run(work, &outcome_);
  last_step_seconds_ = NowSeconds();
  if (status.ok()) status = masks_taken;
  return status.ok() ? AnswerStep(number) : status;
}

absl::Status Member::TellFailure(const absl::Status& status) {
  v1::StepResult result;
  result.set_step(step_.descriptor()->step());
  result.set_error_code(static_cast<int32_t>(status.code()));
  result.set_error(std::string(StdView(status.message())));
  Answer(FrameType::kStepResult, result).IgnoreError();
  return status;
}

absl::Status Member::TakeMasks() {
  std::string payload;
  const auto type = options_.control->ReceiveAny(kMaxDescriptorBytes, &payload, kMasksSeconds);
  if (!type.ok()) return type.status();
  if (*type != static_cast<uint16_t>(FrameType::kStepMasks)) {
    return absl::InvalidArgumentError(
        StrCat("the leader sent a frame of type ", *type, " instead of masks"));
  }
  return step_.TakeMasks(payload);
}

absl::Status Member::TakeNote(const std::string& payload) {
  v1::KvNote note;
  if (kv_part_ == nullptr || !note.ParseFromString(payload)) {
    return absl::InvalidArgumentError("the leader sent a note about KV that cannot be acted on");
  }
  // A note comes between steps.
  if (absl::Status status = Collect(0); !status.ok()) return TellFailure(status);
  return kv_part_->Take(note);
}

absl::Status Member::Answer(FrameType type, const google::protobuf::Message& message) {
  const std::string bytes = message.SerializeAsString();
  return options_.control->Send(static_cast<uint16_t>(type),
                                {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()},
                                kSendSeconds);
}

}  // namespace tessera::worker

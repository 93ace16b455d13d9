#include "worker/formation/member.h"

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
  if (formation_->sums() != nullptr) formation_->sums()->Abort(reason);
}

double Member::idle_seconds() const { return NowSeconds() - last_step_seconds_; }

void Member::Run() {
  absl::Status status;
  std::string payload;
  while (status.ok()) {
    const auto type = options_.control->ReceiveAny(kMaxDescriptorBytes, &payload, kIdleSeconds);
    if (absl::IsDeadlineExceeded(type.status()) && options_.control->status().ok()) continue;
    if (!type.ok()) {
      status = type.status();
    } else if (*type == static_cast<uint16_t>(FrameType::kKvNote)) {
      status = TakeNote(payload);
    } else if (*type == static_cast<uint16_t>(FrameType::kStepDescriptor) ||
               *type == static_cast<uint16_t>(FrameType::kMasklessStep)) {
      status = RunStep(payload, *type == static_cast<uint16_t>(FrameType::kMasklessStep));
      last_step_seconds_ = NowSeconds();
    } else {
      status = absl::InvalidArgumentError(StrCat("the leader sent a frame of type ", *type));
    }
  }
  ended_ = true;
  ShutDown(status);
  if (options_.on_end) options_.on_end(status);
}

absl::Status Member::RunStep(const std::string& payload, bool masks_follow) {
  v1::StepResult result;
  absl::Status status, masks_taken;
  if (!step_.descriptor()->ParseFromString(payload)) {
    status = absl::InvalidArgumentError("the leader sent a step descriptor that cannot be read");
  } else if (step_.descriptor()->fence().plan_epoch() != options_.fence.plan_epoch()) {
    status = absl::FailedPreconditionError(
        StrCat("a step of plan epoch ", step_.descriptor()->fence().plan_epoch(),
               "; this worker is at epoch ", options_.fence.plan_epoch()));
  } else {
    status = step_.Check();
  }
  const std::function<void()> take_masks = [&] { masks_taken = TakeMasks(); };
  if (status.ok()) {
    StepWork work = step_.work();
    if (masks_follow) work.make_masks = &take_masks;
    status = stage_->Run(work, &outcome_);
  }
  if (status.ok()) status = masks_taken;
  if (status.ok()) {
    if (!stage_->samples()) return status;
    WriteResult(step_.descriptor()->step(), std::move(outcome_), &result);
    return Answer(FrameType::kStepResult, result);
  }
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
  return kv_part_->Take(note);
}

absl::Status Member::Answer(FrameType type, const google::protobuf::Message& message) {
  const std::string bytes = message.SerializeAsString();
  return options_.control->Send(static_cast<uint16_t>(type),
                                {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()},
                                kSendSeconds);
}

}  // namespace tessera::worker

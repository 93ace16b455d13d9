#include "worker/formation/group_executor.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "third_party/absl/str_cat.h"
#include "worker/step/step_wire.h"

namespace tessera::worker {
namespace {

using Clock = std::chrono::steady_clock;

// A descriptor is small, and a member always reads: one that does not take it is stuck.
constexpr double kSendSeconds = 30;
// Logprobs of many rows are the largest answer.
constexpr int64_t kMaxResultBytes = int64_t{256} << 20;
// How often links are looked at that poll(2) does not report.
constexpr std::chrono::milliseconds kLookAgain(200);

}  // namespace

GroupOptions GroupOptionsOf(const v1::ConfigureRequest& request, const Formation& formation) {
  const FormationPlace& place = formation.place();
  GroupOptions options;
  options.fence = request.fence();
  for (const int member : place.control) {
    if (member == place.sampler) options.sampler = static_cast<int>(options.members.size());
    options.members.push_back({MemberName(request, member), formation.control(member)});
  }
  options.bulk = formation.bulk();
  return options;
}

GroupExecutor::GroupExecutor(GroupOptions options, std::unique_ptr<StageRunner> stage)
    : options_(std::move(options)), stage_(std::move(stage)) {}

absl::Status GroupExecutor::BrokenReason() {
  std::lock_guard lock(mutex_);
  return broken_;
}

absl::Status GroupExecutor::Broken() {
  if (absl::Status reason = BrokenReason(); !reason.ok()) return reason;
  for (const GroupMember& member : options_.members) {
    if (absl::Status status = member.control->status(); !status.ok()) return Fail(status);
    if (member.control->PeerClosed()) {
      return Fail(absl::UnavailableError(StrCat(member.name, " has closed its link")));
    }
  }
  return absl::OkStatus();
}

void GroupExecutor::Abort(const absl::Status& reason) {
  {
    std::lock_guard lock(mutex_);
    if (broken_.ok()) broken_ = reason;
  }
  for (const GroupMember& member : options_.members) member.control->Shutdown(reason);
  for (kernels::Link* link : options_.bulk) link->Shutdown(reason);
}

// A member that fails says why on its control link before it closes it; that reason is better than
// what its neighbours see.
absl::Status GroupExecutor::Fail(const absl::Status& status) {
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
  reason = absl::UnavailableError(StrCat("the replica's workers no longer run steps together: ",
                                         std::string(StdView(reason.message()))));
  Abort(reason);
  return BrokenReason();
}

absl::Status GroupExecutor::Begin(const StepWork& work) {
  if (absl::Status reason = BrokenReason(); !reason.ok()) return reason;
  work_ = work;
  WriteDescriptor(work, &descriptor_);
  descriptor_.set_step(++step_);
  *descriptor_.mutable_fence() = options_.fence;
  bytes_.clear();
  descriptor_.AppendToString(&bytes_);
  const auto* data = reinterpret_cast<const std::byte*>(bytes_.data());
  for (const GroupMember& member : options_.members) {
    const absl::Status sent = member.control->Send(
        static_cast<uint16_t>(FrameType::kStepDescriptor), {data, bytes_.size()}, kSendSeconds);
    if (!sent.ok()) return Fail(sent);
  }
  return absl::OkStatus();
}

absl::Status GroupExecutor::Take(StepOutcome* outcome) {
  absl::Status status = stage_->Run(work_, outcome);
  if (status.ok() && options_.sampler >= 0) status = AwaitResult(outcome);
  return status.ok() ? status : Fail(status);
}

absl::Status GroupExecutor::AwaitResult(StepOutcome* outcome) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(options_.step_seconds);
  std::vector<pollfd> sockets(options_.members.size());
  while (Clock::now() < deadline) {
    for (size_t i = 0; i < sockets.size(); ++i) {
      sockets[i] = {options_.members[i].control->socket(), POLLIN, 0};
    }
    poll(sockets.data(), sockets.size(), kLookAgain.count());
    for (size_t i = 0; i < sockets.size(); ++i) {
      if (absl::Status status = options_.members[i].control->status(); !status.ok()) return status;
      if (sockets[i].revents == 0) continue;
      const auto done = ReadFrom(i, outcome);
      if (!done.ok()) return done.status();
      if (*done) return absl::OkStatus();
    }
  }
  return absl::DeadlineExceededError(StrCat(options_.members[options_.sampler].name,
                                            " did not answer a step within ", options_.step_seconds,
                                            " s"));
}

absl::StatusOr<bool> GroupExecutor::ReadFrom(size_t member, StepOutcome* outcome) {
  const GroupMember& from = options_.members[member];
  std::string payload;
  const auto type = from.control->ReceiveAny(kMaxResultBytes, &payload, kSendSeconds);
  if (!type.ok()) return type.status();
  v1::StepResult result;
  if (*type != static_cast<uint16_t>(FrameType::kStepResult) || !result.ParseFromString(payload)) {
    return absl::InvalidArgumentError(
        StrCat(from.name, " sent a frame of type ", *type, " that is no step result"));
  }
  if (result.error_code() == 0 &&
      (result.step() != step_ || static_cast<int>(member) != options_.sampler)) {
    return absl::FailedPreconditionError(
        StrCat(from.name, " answered step ", result.step(), ", which it was not asked for"));
  }
  absl::Status status =
      ReadResult(std::move(result), work_.samples.size(), work_.scores.size(), outcome);
  if (status.ok()) return true;
  return absl::Status(status.code(),
                      StrCat(from.name, ": ", std::string(StdView(status.message()))));
}

}  // namespace tessera::worker

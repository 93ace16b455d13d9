#include "worker/formation/formation_frames.h"

#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

constexpr double kSliceSeconds = 1;

}  // namespace

absl::StatusOr<uint16_t> AwaitFrame(kernels::Link* link, double wait_seconds,
                                    const std::function<bool()>& cancelled, std::string* payload) {
  std::string unused;
  for (double waited = 0; waited < wait_seconds; waited += kSliceSeconds) {
    if (cancelled()) return absl::CancelledError("the Configure call was cancelled");
    const auto came =
        link->ReceiveAny(1 << 16, payload == nullptr ? &unused : payload, kSliceSeconds);
    if (absl::IsDeadlineExceeded(came.status()) && link->status().ok()) continue;
    return came;
  }
  return absl::DeadlineExceededError(
      StrCat(link->peer(), " did not join within ", wait_seconds, " s"));
}

absl::Status CheckFrame(const kernels::Link& link, FrameType type, uint16_t came) {
  if (came == static_cast<uint16_t>(type)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(link.peer(), " sent a frame of type ", came, " while the replica was being formed"));
}

absl::Status AwaitMessage(kernels::Link* link, FrameType type, google::protobuf::Message* message,
                          double wait_seconds, const std::function<bool()>& cancelled) {
  std::string payload;
  const auto came = AwaitFrame(link, wait_seconds, cancelled, &payload);
  if (!came.ok()) return came.status();
  if (absl::Status status = CheckFrame(*link, type, *came); !status.ok()) return status;
  if (message->ParseFromString(payload)) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(link->peer(), " sent a damaged message"));
}

absl::Status SendMessage(kernels::Link* link, FrameType type,
                         const google::protobuf::Message& message) {
  return SendText(*link, type, message.SerializeAsString());
}

absl::Status SendText(kernels::Link& link, FrameType type, const std::string& text) {
  return link.Send(static_cast<uint16_t>(type),
                   {reinterpret_cast<const std::byte*>(text.data()), text.size()}, kSendSeconds);
}

absl::Status AwaitText(kernels::Link* link, FrameType type, std::string* text, double wait_seconds,
                       const std::function<bool()>& cancelled) {
  const auto came = AwaitFrame(link, wait_seconds, cancelled, text);
  return came.ok() ? CheckFrame(*link, type, *came) : came.status();
}

}  // namespace tessera::worker

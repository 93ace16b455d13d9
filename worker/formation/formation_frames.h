// Frames by which members of a replica agree while it is being formed. Waits are bounded; one
// thread per link.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/links/link.h"
#include "worker/step/stage_runner.h"

namespace tessera::worker {

// For the peer's socket to take a frame.
inline constexpr double kSendSeconds = 30;

// The type of the next frame, however long its sender still loads; its content, unless `payload` is
// null. `cancelled` is asked about every second. DeadlineExceeded, Cancelled, and the link's
// errors.
absl::StatusOr<uint16_t> AwaitFrame(kernels::Link* link, double wait_seconds,
                                    const std::function<bool()>& cancelled,
                                    std::string* payload = nullptr);
// InvalidArgument: what came is not of `type`.
absl::Status CheckFrame(const kernels::Link& link, FrameType type, uint16_t came);
// One frame of `type` that holds a message; InvalidArgument for any other.
absl::Status AwaitMessage(kernels::Link* link, FrameType type, google::protobuf::Message* message,
                          double wait_seconds, const std::function<bool()>& cancelled);
absl::Status SendMessage(kernels::Link* link, FrameType type,
                         const google::protobuf::Message& message);
// The same of plain text.
absl::Status SendText(kernels::Link& link, FrameType type, const std::string& text);
absl::Status AwaitText(kernels::Link* link, FrameType type, std::string* text, double wait_seconds,
                       const std::function<bool()>& cancelled);

}  // namespace tessera::worker

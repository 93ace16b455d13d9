// Makes groups whose values go from device to device without the host, where a device has a way to
// (NCCL between GPUs): Device::group_maker.
//
// Thread rule: any thread. Ownership: borrowed from a Device, which its groups and pairs must not
// outlive.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/collectives/device_pair.h"
#include "kernels/collectives/group.h"

namespace tessera::kernels {

class GroupMaker {
 public:
  virtual ~GroupMaker() = default;

  // Names the device, the same in all processes: no two ranks of a group may have the same one.
  virtual std::string device_id() const = 0;
  // What makes the groups, with its version: all ranks must have the same one. "NCCL 2.28.9".
  virtual std::string library() const = 0;
  // Names a group that is to be made: rank 0 asks, all ranks get it. Opaque bytes.
  virtual absl::StatusOr<std::string> NewId() = 0;
  // Blocks until all ranks of the group with this id are there, for at most `join_seconds`.
  // DeadlineExceeded: they are not; Cancelled: `cancelled` said so.
  virtual absl::StatusOr<std::unique_ptr<Group>> Join(int rank, int size, const std::string& id,
                                                      const GroupOptions& options,
                                                      double join_seconds,
                                                      const std::function<bool()>& cancelled) = 0;
  // Likewise of two, each with `memory_bytes` of its device's memory. ResourceExhausted: they are
  // not there.
  virtual absl::StatusOr<std::unique_ptr<DevicePair>> JoinPair(
      int rank, const std::string& id, int64_t memory_bytes, double join_seconds,
      const std::function<bool()>& cancelled) = 0;
};

}  // namespace tessera::kernels

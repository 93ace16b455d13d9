// Makes groups whose values go from device to device without the host, where a device has a way to
// (a library such as NCCL between GPUs; sums in memory of the host that devices map):
// Device::group_maker.
//
// Thread rule: any thread. Ownership: borrowed from a Device, which its groups and pairs must not
// outlive.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/collectives/device_pair.h"
#include "kernels/collectives/device_sums.h"
#include "kernels/collectives/group.h"

namespace tessera::kernels {

class GroupMaker {
 public:
  virtual ~GroupMaker() = default;

  // Names the device, the same in all processes: no two ranks of a group may have the same one.
  // Empty where no other process can have it.
  virtual std::string device_id() const = 0;
  // What makes the groups, with its version: all ranks must have the same one. "NCCL 2.28.9".
  // Empty: there is none, and NewId, Join and JoinPair are FAILED_PRECONDITION.
  virtual std::string library() const = 0;
  bool has_library() const { return !library().empty(); }
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

  // How sums in mapped memory work here, with a version: all ranks must have the same. Empty: the
  // device makes none.
  virtual std::string sums_kind() const = 0;
  // Size of the memory that the ranks share.
  virtual int64_t SumsMemoryBytes(int size) const = 0;
  // `memory`: shared by the ranks, which are on one machine, of that size in whole pages, and zeros
  // before the first one begins. All ranks at once: it may wait for them, some seconds at most.
  // ResourceExhausted: the system does not let the
  // device map it.
  virtual absl::StatusOr<std::unique_ptr<DeviceSums>> MapSums(int rank, int size,
                                                              std::shared_ptr<std::byte> memory,
                                                              const GroupOptions& options) = 0;
};

}  // namespace tessera::kernels

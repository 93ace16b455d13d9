// Where the inboxes of a rank's sums lie (mapped_sum.h): in the memory of the ranks' devices, where
// each reaches all others' (NVLink, or PCIe with peer access), else in the host memory that the
// ranks share.
//
// A device of this process is a peer by cudaDeviceEnablePeerAccess, that of another process by CUDA
// IPC, where the driver opens its handle: both processes must have one namespace of process ids.
// What is opened is tried before it is used, by sums in all places: there are machines on which
// peers are granted, and values get lost (an IOMMU between them). Where anything fails, or takes
// too long, all ranks stay in host memory (peer_meeting.h), and nothing else changes.
//
// Memory of a rank is freed when all others have closed it. A rank that goes first leaves its own
// in the process's care: it is freed when another RankInboxes of the process begins or ends, once
// the others have gone. A process that ends waits two seconds for them: what was enqueued on their
// devices may store there still.
//
// Thread rule: one thread at a time. Meet blocks, in bounded time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sums/mapped_sum.h"
#include "kernels/cuda/sums/peer_meeting.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

inline constexpr double kMeetSeconds = 10;

struct RankInboxesOptions {
  int rank = 0, size = 0;
  // MappedSumBytes(size), shared by the ranks, zeros before the first one begins; kept.
  std::shared_ptr<std::byte> memory;
  std::byte* on_device = nullptr;  // the same, at the device's address
  int device_index = 0;
  double wait_seconds = kMeetSeconds;  // in all, for the other ranks
  uint64_t process = 0;                // 0: this one's id; else what stands for it
};

class RankInboxes {
 public:
  // All ranks at once. The calling thread has chosen the device.
  static std::unique_ptr<RankInboxes> Meet(const RankInboxesOptions& options);
  // Nothing that uses them may be enqueued still.
  ~RankInboxes();
  RankInboxes(const RankInboxes&) = delete;
  RankInboxes& operator=(const RankInboxes&) = delete;

  const MappedSumInboxes& get() const { return inboxes_; }
  bool in_peers() const { return in_peers_; }
  // Why they are in host memory, with the rank that said so; empty: they are in the peers'.
  std::string why_host() const { return in_peers_ ? "" : meeting_.WhyHost(); }
  // Blocks that the first sum finds counted in MappedSumState::begun: those of what was tried.
  int32_t begun() const { return begun_; }

 private:
  explicit RankInboxes(const RankInboxesOptions& options);

  // Each refuses where it fails.
  bool Offer();
  bool Reach();
  bool Try();

  bool Succeeded(cudaError_t error, const std::string& what);
  bool ReachRank(int rank, MappedSumInbox** inbox);
  bool TrySum(int sum, cudaStream_t stream);
  bool AwaitIdle(cudaStream_t stream);
  void Leave();

  const RankInboxesOptions options_;
  PeerMeeting meeting_;
  MappedSumInboxes inboxes_;
  bool in_peers_ = false;
  int32_t begun_ = 0;
  std::byte* own_ = nullptr;   // inbox, then what is tried: values and a state
  std::vector<void*> opened_;  // of other processes
  bool kernel_hangs_ = false;  // it may write to `own_` for ever
  MappedSumInboxes of_peers_;
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

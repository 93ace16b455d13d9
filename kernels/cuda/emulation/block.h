// One block of an emulated launch: its threads as fibers, and the places where they meet.
//
// A thread runs until it waits: for the lanes of its warp (shuffles, votes, matrix instructions,
// __syncwarp), for a barrier (__syncthreads, named barriers), or until it ends. Which of the
// threads that can go on is next, the Schedule says. Between two such places a lane knows nothing
// of the other lanes of its warp: less than any GPU promises.
//
// A fault ends the block: a deadlock, lanes that meet in different instructions, a misaligned
// address. The status then names block, threads and what each waits for, with file and line; frames
// of the other threads are dropped without running destructors, which device code has none of.
//
// Thread rule: one host thread per Block; Block::Current() is the one that runs on the caller's.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/emulation/fibers.h"
#include "kernels/cuda/emulation/schedule.h"
#include "kernels/cuda/emulation/shared_memory.h"
#include "kernels/cuda/launch/launch_shape.h"

namespace tessera::kernels::cuda::emulated {

inline constexpr uint32_t kAllLanes = 0xffffffffu;
inline constexpr int kNamedBarriers = 16;

// Where in a kernel a thread is, for reports; and what has to agree among those that meet.
struct Site {
  const char* instruction = nullptr;  // "__syncthreads"
  std::source_location place = {};
};

// What the lanes of a warp bring to an instruction: null for lanes that are not in it.
using LaneArguments = std::array<void*, kWarpThreads>;

class Block {
 public:
  // `name` stands for the kernel in reports; `capability` is of the GPU. All are borrowed.
  Block(std::string name, const LaunchShape& shape, int capability, const Schedule& schedule,
        Fibers& fibers, SharedMemory& shared, ScheduleRandom& random);

  // Runs body() once per thread of the block with this index.
  absl::Status Run(const LaunchShape::Extent& index, const std::function<void()>& body);

  // For the running thread of the block:

  static Block& Current();
  int lane() const;
  SharedMemory& shared() { return shared_; }
  // Waits until all lanes of `mask` that have not ended call this at the same site; then `execute`
  // runs once, with each lane's argument. `mask` must have the caller's bit.
  void Meet(uint32_t mask, const Site& site, void* argument,
            void (*execute)(Block& block, const LaneArguments& lanes));
  // The same for all 32 lanes of the warp, none of which may have ended.
  void MeetAligned(const Site& site, void* argument,
                   void (*execute)(Block& block, const LaneArguments& lanes));
  // Waits for `threads` arrivals at named barrier `id`, this one included; 0: all threads of the
  // block that have not ended, and then all must be at the same site.
  void Synchronize(int id, int threads, const Site& site);
  // Arrives at a named barrier without waiting.
  void Arrive(int id, int threads, const Site& site);
  // Fails where the GPU has no `what`, which comes with this capability.
  void CheckCapability(int capability, const Site& site, const char* what);
  // cp.async: `read_bytes` of `from`, then zeros up to `size_bytes`, to shared memory.
  void CopyAsync(void* shared, const void* global, int size_bytes, int read_bytes,
                 const Site& site);
  void CommitCopies();
  // Until at most `newest` of the thread's committed groups are outstanding.
  void WaitCopies(int newest);
  // For kernels that begin early (LaunchEarly).
  void WaitForEarlierLaunches() { threads_[running_].waited_for_earlier = true; }
  // Fails where the running thread did not wait so before it did `what`.
  void CheckWaited(const Site& site, const char* what);
  // Ends the block with a fault of the running thread.
  [[noreturn]] void Fail(const Site& site, const std::string& what);

 private:
  struct Fault {};  // thrown by Fail, caught where the thread's fiber began
  struct Copy {
    void* to;
    const void* from;
    int size_bytes, read_bytes;
    int64_t group;
  };
  struct Thread {
    bool waits = false;  // at `site`
    bool ended = false;
    bool waited_for_earlier = false;
    Site site;
    uint32_t mask = 0;         // of the meeting that it waits for
    bool aligned = false;      // which needs all lanes of the warp
    void* argument = nullptr;  // for it
    void (*execute)(Block&, const LaneArguments&) = nullptr;
    int barrier = -1;  // that it waits for
    int64_t committed_groups = 0;
    std::vector<Copy> copies;  // that have not landed
  };
  struct Warp {
    uint32_t live = 0;      // lanes that have not ended
    uint32_t runnable = 0;  // of them, those that can go on
    uint32_t meeting = 0;   // of them, those that wait for lanes of the warp
  };
  struct Barrier {
    int threads = 0;  // that it waits for; 0: all
    int arrived = 0;
    Site site;  // of the first
  };

  static void RunThread(void* block);
  int PickThread();
  int Pick(uint32_t candidates, Order order);
  void MeetWith(uint32_t mask, bool aligned, const Site& site, void* argument,
                void (*execute)(Block& block, const LaneArguments& lanes));
  void TryMeeting(int warp, uint32_t mask);
  void ArriveAt(int id, int threads, const Site& site);
  void TryBarrier(int id);
  void LetGoOn(int thread);
  void EndThread();
  void Land(const Copy& copy);
  std::string ThreadName(int thread) const;
  std::string DescribeWaits() const;

  const std::string name_;
  const LaunchShape shape_;
  const int capability_;
  const Schedule schedule_;
  Fibers& fibers_;
  SharedMemory& shared_;
  ScheduleRandom& random_;
  const std::function<void()>* body_ = nullptr;
  LaunchShape::Extent index_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  uint32_t runnable_warps_ = 0;
  int live_threads_ = 0;
  int running_ = 0;
  std::array<Barrier, kNamedBarriers> barriers_;
  std::string fault_;
};

}  // namespace tessera::kernels::cuda::emulated

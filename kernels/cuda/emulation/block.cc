#include "kernels/cuda/emulation/block.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "kernels/cuda/emulation/device_variables.h"
#include "kernels/cuda/launch/gpu_limits.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::emulated {
namespace {

// Turns of one block before it counts as one that never ends: seconds.
constexpr int64_t kMaxTurns = int64_t{1} << 28;

thread_local Block* current = nullptr;

bool Same(const Site& a, const Site& b) {
  return std::string_view(a.instruction) == b.instruction && a.place.line() == b.place.line() &&
         a.place.column() == b.place.column() &&
         std::string_view(a.place.file_name()) == b.place.file_name();
}

std::string Name(const Site& site) {
  if (site.place.line() == 0) return site.instruction;
  std::string_view file = site.place.file_name();
  file.remove_prefix(file.rfind('/') + 1);
  return StrCat(site.instruction, " at ", file, ":", site.place.line());
}

std::string Name(const LaunchShape::Extent& index) {
  return StrCat("(", index.x, ", ", index.y, ", ", index.z, ")");
}

// "thread 5", "threads 0-31 and 64"; ascending.
std::string NameThreads(const std::vector<int>& threads) {
  std::string text = threads.size() == 1 ? "thread " : "threads ";
  for (std::size_t i = 0; i < threads.size();) {
    std::size_t end = i + 1;
    while (end < threads.size() && threads[end] == threads[end - 1] + 1) ++end;
    if (i > 0) text += end == threads.size() ? " and " : ", ";
    text += StrCat(threads[i]);
    if (end - i > 1) text += StrCat("-", threads[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace

Block::Block(std::string name, const LaunchShape& shape, int capability, const Schedule& schedule,
             Fibers& fibers, SharedMemory& shared, ScheduleRandom& random)
    : name_(std::move(name)),
      shape_(shape),
      capability_(capability),
      schedule_(schedule),
      fibers_(fibers),
      shared_(shared),
      random_(random) {
  fibers_.Reserve(static_cast<int>(shape.threads.count()));
}

Block& Block::Current() { return *current; }

int Block::lane() const { return running_ % kWarpThreads; }

absl::Status Block::Run(const LaunchShape::Extent& index, const std::function<void()>& body) {
  const auto count = static_cast<int>(shape_.threads.count());
  body_ = &body;
  index_ = index;
  threads_.assign(count, {});
  warps_.assign((count + kWarpThreads - 1) / kWarpThreads, {});
  barriers_ = {};
  live_threads_ = count;
  runnable_warps_ = 0;
  shared_.Begin(shape_.shared_bytes, BlockSharedBytes(capability_));
  blockIdx = {static_cast<unsigned>(index.x), static_cast<unsigned>(index.y),
              static_cast<unsigned>(index.z)};
  for (int t = 0; t < count; ++t) {
    warps_[t / kWarpThreads].live |= 1u << t % kWarpThreads;
    LetGoOn(t);
    fibers_.Start(t, &RunThread, this);
  }
  Block* const outer = std::exchange(current, this);
  for (int64_t turns = 0; fault_.empty() && live_threads_ > 0; ++turns) {
    if (turns == kMaxTurns) {
      fault_ = StrCat("does not end; ", DescribeWaits());
    } else if (runnable_warps_ == 0) {
      fault_ = StrCat("deadlock: ", DescribeWaits());
    } else {
      running_ = PickThread();
      const auto x = static_cast<unsigned>(shape_.threads.x);
      const auto y = static_cast<unsigned>(shape_.threads.y);
      const auto t = static_cast<unsigned>(running_);
      threadIdx = {t % x, t / x % y, t / (x * y)};
      fibers_.Resume(running_);
    }
  }
  current = outer;
  if (fault_.empty()) fault_ = shared_.CheckGuards();
  if (fault_.empty()) return absl::OkStatus();
  return absl::InternalError(StrCat("CUDA kernel launched at ", name_, ", block ", Name(index_),
                                    ": ", fault_, "; schedule: ", Describe(schedule_)));
}

void Block::RunThread(void* block) {
  auto& self = *static_cast<Block*>(block);
  try {
    (*self.body_)();
    self.EndThread();
  } catch (const Fault&) {
  }
  self.fibers_.Suspend();
}

int Block::Pick(uint32_t candidates, Order order) {
  switch (order) {
    case Order::kAscending: break;
    case Order::kDescending: return 31 - std::countl_zero(candidates);
    case Order::kRandom:
      for (uint32_t skip = random_.Below(std::popcount(candidates)); skip > 0; --skip) {
        candidates &= candidates - 1;
      }
  }
  return std::countr_zero(candidates);
}

int Block::PickThread() {
  const int warp = Pick(runnable_warps_, schedule_.warps);
  return warp * kWarpThreads + Pick(warps_[warp].runnable, schedule_.lanes);
}

void Block::LetGoOn(int thread) {
  const int warp = thread / kWarpThreads;
  threads_[thread].waits = false;
  warps_[warp].runnable |= 1u << thread % kWarpThreads;
  runnable_warps_ |= 1u << warp;
}

void Block::Fail(const Site& site, const std::string& what) {
  fault_ = StrCat(ThreadName(running_), ": ", Name(site), ": ", what);
  throw Fault();
}

void Block::CheckWaited(const Site& site, const char* what) {
  if (threads_[running_].waited_for_earlier) return;
  Fail(site, std::string(what) + " without WaitForEarlierLaunches");
}

void Block::Meet(uint32_t mask, const Site& site, void* argument,
                 void (*execute)(Block& block, const LaneArguments& lanes)) {
  MeetWith(mask, false, site, argument, execute);
}

void Block::MeetAligned(const Site& site, void* argument,
                        void (*execute)(Block& block, const LaneArguments& lanes)) {
  MeetWith(kAllLanes, true, site, argument, execute);
}

void Block::MeetWith(uint32_t mask, bool aligned, const Site& site, void* argument,
                     void (*execute)(Block& block, const LaneArguments& lanes)) {
  Thread& thread = threads_[running_];
  const int warp = running_ / kWarpThreads;
  const uint32_t bit = 1u << lane();
  if ((mask & bit) == 0) Fail(site, "the lane is not in its own mask");
  thread.waits = true;
  thread.aligned = aligned;
  thread.site = site;
  thread.mask = mask;
  thread.argument = argument;
  thread.execute = execute;
  Warp& w = warps_[warp];
  w.meeting |= bit;
  w.runnable &= ~bit;
  if (w.runnable == 0) runnable_warps_ &= ~(1u << warp);
  TryMeeting(warp, mask);
  fibers_.Suspend();
}

// Executes the meeting of this mask if all lanes that it needs wait for it.
void Block::TryMeeting(int warp, uint32_t mask) {
  Warp& w = warps_[warp];
  const uint32_t needed = mask & w.live;
  if (needed == 0 || (w.meeting & needed) != needed) return;
  const int first_lane = std::countr_zero(needed);
  const Thread& first = threads_[warp * kWarpThreads + first_lane];
  LaneArguments lanes = {};
  for (int lane = first_lane; lane < kWarpThreads; ++lane) {
    if ((needed >> lane & 1u) == 0) continue;
    const Thread& thread = threads_[warp * kWarpThreads + lane];
    if (thread.mask != mask) return;
    if (!Same(thread.site, first.site)) {
      Fail(thread.site, StrCat("lane ", first_lane, " of the warp is in ", Name(first.site)));
    }
    lanes[lane] = thread.argument;
  }
  if (first.aligned && needed != kAllLanes) {
    Fail(first.site,
         StrCat("needs all 32 lanes of the warp, of which ", std::popcount(w.live), " run"));
  }
  first.execute(*this, lanes);
  w.meeting &= ~needed;
  for (int lane = first_lane; lane < kWarpThreads; ++lane) {
    if ((needed >> lane & 1u) != 0) LetGoOn(warp * kWarpThreads + lane);
  }
}

void Block::ArriveAt(int id, int threads, const Site& site) {
  const auto count = static_cast<int>(threads_.size());
  if (id < 0 || id >= kNamedBarriers) {
    Fail(site, StrCat("barrier ", id, " is not one of 0 to ", kNamedBarriers - 1));
  }
  if (threads % kWarpThreads != 0 || threads > (count + 31) / kWarpThreads * kWarpThreads) {
    Fail(site, StrCat(threads, " threads are no whole number of the block's warps"));
  }
  Barrier& barrier = barriers_[id];
  if (barrier.arrived == 0) {
    barrier.threads = threads;
    barrier.site = site;
  } else if (barrier.threads != threads) {
    Fail(site, StrCat("barrier ", id, " is for ", threads, " threads here, and for ",
                      barrier.threads, " in ", Name(barrier.site)));
  } else if (threads == 0 && !Same(barrier.site, site)) {
    Fail(site, StrCat("other threads of the block are in ", Name(barrier.site)));
  }
  ++barrier.arrived;
}

// Opens the barrier if all that it waits for have arrived.
void Block::TryBarrier(int id) {
  Barrier& barrier = barriers_[id];
  const int needed = barrier.threads == 0 ? live_threads_ : barrier.threads;
  if (barrier.arrived == 0 || barrier.arrived < needed) return;
  barrier = {};
  for (std::size_t t = 0; t < threads_.size(); ++t) {
    if (threads_[t].barrier != id) continue;
    threads_[t].barrier = -1;
    LetGoOn(static_cast<int>(t));
  }
}

void Block::Synchronize(int id, int threads, const Site& site) {
  ArriveAt(id, threads, site);
  Thread& thread = threads_[running_];
  thread.waits = true;
  thread.site = site;
  thread.barrier = id;
  const int warp = running_ / kWarpThreads;
  warps_[warp].runnable &= ~(1u << lane());
  if (warps_[warp].runnable == 0) runnable_warps_ &= ~(1u << warp);
  TryBarrier(id);
  fibers_.Suspend();
}

void Block::Arrive(int id, int threads, const Site& site) {
  ArriveAt(id, threads, site);
  TryBarrier(id);
}

void Block::Land(const Copy& copy) {
  auto* to = static_cast<std::byte*>(copy.to);
  std::memcpy(to, copy.from, copy.read_bytes);
  std::memset(to + copy.read_bytes, 0, copy.size_bytes - copy.read_bytes);
}

void Block::CheckCapability(int capability, const Site& site, const char* what) {
  if (capability_ >= capability) return;
  Fail(site,
       StrCat("a GPU of capability ", capability_ / 10, ".", capability_ % 10, " has no ", what));
}

void Block::CopyAsync(void* shared, const void* global, int size_bytes, int read_bytes,
                      const Site& site) {
  const auto misaligned = [size_bytes](const void* address) {
    return reinterpret_cast<uintptr_t>(address) % size_bytes != 0;
  };
  if (misaligned(shared) || misaligned(global)) {
    Fail(site, StrCat("an address is not a multiple of ", size_bytes, " bytes"));
  }
  if (!shared_.Contains(shared, size_bytes)) {
    Fail(site, "the destination is not in the block's shared memory");
  }
  Thread& thread = threads_[running_];
  const Copy copy = {shared, global, size_bytes, read_bytes, thread.committed_groups};
  // Older GPUs have plain copies in its place.
  const bool now = capability_ < kAmpere || schedule_.copies == CopyLanding::kAtIssue ||
                   (schedule_.copies == CopyLanding::kRandom && random_.Below(2) == 0);
  if (now) {
    Land(copy);
  } else {
    thread.copies.push_back(copy);
  }
}

void Block::CommitCopies() { ++threads_[running_].committed_groups; }

void Block::WaitCopies(int newest) {
  Thread& thread = threads_[running_];
  const int64_t first_outstanding = thread.committed_groups - newest;
  auto copy = thread.copies.begin();
  for (; copy != thread.copies.end() && copy->group < first_outstanding; ++copy) Land(*copy);
  thread.copies.erase(thread.copies.begin(), copy);
}

void Block::EndThread() {
  Thread& thread = threads_[running_];
  if (!thread.copies.empty()) {
    Fail({"the end of the kernel"}, "asynchronous copies are outstanding that were not waited for");
  }
  thread.ended = true;
  --live_threads_;
  const int warp = running_ / kWarpThreads;
  Warp& w = warps_[warp];
  const uint32_t bit = 1u << lane();
  w.live &= ~bit;
  w.runnable &= ~bit;
  if (w.runnable == 0) runnable_warps_ &= ~(1u << warp);
  // Those that waited for this one need not any more.
  for (uint32_t left = w.meeting; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    if ((w.meeting >> lane & 1u) != 0) TryMeeting(warp, threads_[warp * kWarpThreads + lane].mask);
  }
  for (int id = 0; id < kNamedBarriers; ++id) {
    if (barriers_[id].threads == 0) TryBarrier(id);
  }
}

std::string Block::ThreadName(int thread) const {
  const LaunchShape::Extent& extent = shape_.threads;
  return StrCat("thread ", Name({thread % extent.x, thread / extent.x % extent.y,
                                 thread / (extent.x * extent.y)}));
}

std::string Block::DescribeWaits() const {
  std::vector<std::pair<std::string, std::vector<int>>> groups;  // what they do, and who
  for (std::size_t t = 0; t < threads_.size(); ++t) {
    const Thread& thread = threads_[t];
    std::string state = thread.ended ? "ended" : "can go on";
    if (thread.waits) {
      state = StrCat("wait in ", Name(thread.site));
      if (thread.barrier > 0) state += StrCat(" for barrier ", thread.barrier);
    }
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& other) { return other.first == state; });
    if (group == groups.end()) group = groups.insert(groups.end(), {state, {}});
    group->second.push_back(static_cast<int>(t));
  }
  std::string text;
  for (const auto& [state, threads] : groups) {
    text += StrCat(text.empty() ? "" : "; ", NameThreads(threads), " ", state);
  }
  return text;
}

}  // namespace tessera::kernels::cuda::emulated

#include "kernels/cuda/sums/rank_inboxes.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "third_party/absl/str_cat.h"
#ifdef TESSERA_CUDA_EMULATED
#include "kernels/cuda/emulation/peers.h"
#endif

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

static_assert(2 * sizeof(MappedSumControl) <= kPeerMeetingOffset);
static_assert(kPeerMeetingOffset + kPeerMeetingBytes <= kMappedSumControlBytes);

// CUDA gives out a block of memory of this size in parts; a handle opens all of it.
constexpr int64_t kBlockBytes = int64_t{2} << 20;
constexpr int kTrials = 2;  // one for either parity of places
#ifdef TESSERA_CUDA_EMULATED
constexpr int64_t kTrialValues = 4096;  // all would take long
#else
constexpr int64_t kTrialValues = kMaxMappedSumValues;
#endif

int64_t ValuesOffset(int ranks) { return MappedSumInboxBytes(ranks); }
int64_t StateOffset(int ranks) {
  return ValuesOffset(ranks) + kTrialValues * static_cast<int64_t>(sizeof(float));
}
int64_t OwnBytes(int ranks) {
  const auto all = StateOffset(ranks) + static_cast<int64_t>(sizeof(MappedSumState));
  return (all + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

// Whole numbers, so that their sums are exact.
float TrialValue(int rank, int sum, int64_t i) {
  return static_cast<float>((i * (2 * rank + 3) + 977 * rank + 31 * sum) % 65521);
}
float TrialResult(int ranks, int sum, int64_t i) {
  float result = 0;
  for (int rank = 0; rank < ranks; ++rank) result += TrialValue(rank, sum, i);
  return result;
}

// Memory that other ranks may reach still.
struct Lent {
  PeerMeeting meeting;
  std::byte* memory;
};

struct LentMemory {
  std::mutex mutex;
  std::list<Lent> all;
};

LentMemory& OfThisProcess() {
  static auto& lent = *new LentMemory;
  return lent;
}

// Returns whether that is all.
bool FreeWhatNobodyReaches() {
  const std::lock_guard<std::mutex> lock(OfThisProcess().mutex);
  std::erase_if(OfThisProcess().all, [](const Lent& lent) {
    if (!lent.meeting.OthersLeft()) return false;
    cudaFree(lent.memory);  // fails where the device is lost, and then nothing is left to free
    cudaGetLastError();
    return true;
  });
  return OfThisProcess().all.empty();
}

void AwaitOthersAtExit() {
  constexpr std::chrono::milliseconds kPause{2};
  const Deadline end = DeadlineAfter(2);
  while (!FreeWhatNobodyReaches() && SecondsUntil(end) > 0) std::this_thread::sleep_for(kPause);
}

// The runtime has begun, so that it ends behind this.
void RegisterExit() {
  static const int registered = std::atexit(&AwaitOthersAtExit);
  (void)registered;
}

}  // namespace

RankInboxes::RankInboxes(const RankInboxesOptions& options)
    : options_(options),
      meeting_(options.rank, options.size, options.memory, options.wait_seconds) {
  auto* const host = reinterpret_cast<MappedSumInbox*>(options.on_device + kMappedSumControlBytes);
  inboxes_.from = host;
  inboxes_.to[0] = host;
  inboxes_.to_count = 1;
}

std::unique_ptr<RankInboxes> RankInboxes::Meet(const RankInboxesOptions& options) {
  FreeWhatNobodyReaches();
  std::unique_ptr<RankInboxes> made(new RankInboxes(options));
  PeerMeeting& meeting = made->meeting_;
  made->in_peers_ = made->Offer() && meeting.AwaitAll(PeerStep::kOffered) && made->Reach() &&
                    meeting.AwaitAll(PeerStep::kReaches) && made->Try() &&
                    meeting.AwaitAll(PeerStep::kTried) && meeting.Agree();
  if (made->in_peers_) {
    made->inboxes_ = made->of_peers_;
    return made;
  }
  // Whoever waits in a kernel for this rank's part of a trial waits no more.
  auto& trial = reinterpret_cast<MappedSumControl*>(options.memory.get())[1];
  std::atomic_ref<uint32_t>(trial.ended_by).store(static_cast<uint32_t>(options.rank) + 1);
  made->begun_ = 0;
  made->Leave();
  return made;
}

RankInboxes::~RankInboxes() { Leave(); }

void RankInboxes::Leave() {
  cudaSetDevice(options_.device_index);  // the caller's may be another one
  // A kernel that hangs may reach the others' memory still, and its own.
  for (void* memory : opened_) {
    if (kernel_hangs_) break;
    cudaIpcCloseMemHandle(memory);
    cudaGetLastError();
  }
  opened_.clear();
  if (!kernel_hangs_) meeting_.Take(PeerStep::kLeft);
  if (own_ != nullptr && !kernel_hangs_) {
    const std::lock_guard<std::mutex> lock(OfThisProcess().mutex);
    OfThisProcess().all.push_back({meeting_, own_});
  }
  own_ = nullptr;
  FreeWhatNobodyReaches();
}

bool RankInboxes::Succeeded(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return true;
  cudaGetLastError();  // or the next launch of this thread would return it
  meeting_.Refuse(
      StrCat(what, ": ", cudaGetErrorString(error), " (CUDA error ", static_cast<int>(error), ")"));
  return false;
}

bool RankInboxes::Offer() {
  const int64_t bytes = OwnBytes(options_.size);
  void* memory = nullptr;
  if (!Succeeded(cudaMalloc(&memory, static_cast<size_t>(bytes)), "memory for its peers")) {
    return false;
  }
  own_ = static_cast<std::byte*>(memory);
  RegisterExit();
  // Flags and the state are zeros. Places are NaN: an earlier trial's values would hide a fault.
  std::vector<std::byte> image(static_cast<size_t>(bytes), std::byte{0xff});
  std::fill_n(image.begin(), kMappedSumFlagBytes, std::byte{0});
  std::fill_n(image.begin() + StateOffset(options_.size), sizeof(MappedSumState), std::byte{0});
  cudaStream_t stream = nullptr;
  if (!Succeeded(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream")) {
    return false;
  }
  // Others write there as soon as they have the offer, so that the copy has to be over.
  cudaError_t copied =
      cudaMemcpyAsync(own_, image.data(), image.size(), cudaMemcpyHostToDevice, stream);
  if (copied == cudaSuccess) copied = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  if (!Succeeded(copied, "clearing memory for its peers")) return false;

  PeerOffer offer = {
      .process = options_.process != 0 ? options_.process : static_cast<uint64_t>(getpid()),
      .process_namespace = ProcessNamespace(),
      .address = reinterpret_cast<uint64_t>(own_),
      .device_index = options_.device_index};
  cudaIpcMemHandle_t handle;
  static_assert(sizeof handle == sizeof offer.handle);
  if (cudaIpcGetMemHandle(&handle, own_) == cudaSuccess) {
    std::memcpy(offer.handle, &handle, sizeof handle);
    offer.has_handle = 1;
  } else {
    cudaGetLastError();  // ranks of this process need none
  }
  meeting_.Offer(offer);
  return true;
}

bool RankInboxes::Reach() {
  // The next rank's first, so that not all ranks store to the same one at once.
  for (int i = 1; i < options_.size; ++i) {
    MappedSumInbox*& inbox = of_peers_.to[of_peers_.to_count];
    if (!ReachRank((options_.rank + i) % options_.size, &inbox)) return false;
    ++of_peers_.to_count;
  }
  of_peers_.from = reinterpret_cast<const MappedSumInbox*>(own_);
  meeting_.Take(PeerStep::kReaches);
  return true;
}

bool RankInboxes::ReachRank(int rank, MappedSumInbox** inbox) {
  const PeerOffer &own = meeting_.offer(options_.rank), &offer = meeting_.offer(rank);
  if (own.process_namespace == 0 || own.process_namespace != offer.process_namespace) {
    meeting_.Refuse(StrCat("rank ", rank, "'s process is of another namespace of process ids"));
    return false;
  }
  if (own.process == offer.process) {
    *inbox = reinterpret_cast<MappedSumInbox*>(offer.address);
    if (own.device_index == offer.device_index) return true;
    int can = 0;
    if (!Succeeded(cudaDeviceCanAccessPeer(&can, own.device_index, offer.device_index),
                   StrCat("peer access to rank ", rank))) {
      return false;
    }
    if (can == 0) {
      meeting_.Refuse(StrCat("its device cannot access the memory of rank ", rank, "'s"));
      return false;
    }
    // It stays: others of the process may use it.
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(offer.device_index, 0);
    if (enabled == cudaErrorPeerAccessAlreadyEnabled) cudaGetLastError();
    return enabled == cudaErrorPeerAccessAlreadyEnabled ||
           Succeeded(enabled, StrCat("peer access to rank ", rank));
  }
  if (offer.has_handle == 0) {
    meeting_.Refuse(StrCat("there is no CUDA IPC on rank ", rank, "'s device"));
    return false;
  }
  cudaIpcMemHandle_t handle;
  std::memcpy(&handle, offer.handle, sizeof handle);
  void* memory = nullptr;
  if (!Succeeded(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess),
                 StrCat("CUDA IPC with rank ", rank))) {
    return false;
  }
  opened_.push_back(memory);
  *inbox = static_cast<MappedSumInbox*>(memory);
  return true;
}

bool RankInboxes::Try() {
  cudaStream_t stream = nullptr;
  if (!Succeeded(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream")) {
    return false;
  }
  bool right = true;
  for (int sum = 0; right && sum < kTrials; ++sum) right = TrySum(sum, stream);
  if (!kernel_hangs_) cudaStreamDestroy(stream);
  if (right) meeting_.Take(PeerStep::kTried);
  begun_ = kTrials * kMappedSumBlocks;
  return right;
}

bool RankInboxes::TrySum(int sum, cudaStream_t stream) {
  constexpr size_t kBytes = kTrialValues * sizeof(float);
  auto* const on_device = reinterpret_cast<float*>(own_ + ValuesOffset(options_.size));
  std::vector<float> values(kTrialValues);
  for (int64_t i = 0; i < kTrialValues; ++i) values[i] = TrialValue(options_.rank, sum, i);
  if (!Succeeded(cudaMemcpyAsync(on_device, values.data(), kBytes, cudaMemcpyHostToDevice, stream),
                 "values of a trial")) {
    return false;
  }
  const MappedSumParams params = {
      .values = on_device,
      .count = kTrialValues,
      .control = reinterpret_cast<MappedSumControl*>(options_.on_device) + 1,
      .inboxes = of_peers_,
      .state = reinterpret_cast<MappedSumState*>(own_ + StateOffset(options_.size)),
      .rank = options_.rank,
      .ranks = options_.size,
      .max_wait_nanoseconds = static_cast<uint64_t>(meeting_.SecondsLeft() * 1e9)};
  if (!Succeeded(LaunchMappedSum(params, stream), "a trial") || !AwaitIdle(stream)) return false;
  auto& trial = reinterpret_cast<MappedSumControl*>(options_.memory.get())[1];
  const uint64_t failure = std::atomic_ref<uint64_t>(trial.ranks[options_.rank].failure).load();
  if (failure != 0) {
    meeting_.Refuse(StrCat("rank ", failure >> 48 & 0xff, " did not come to a trial"));
    return false;
  }
  cudaError_t copied =
      cudaMemcpyAsync(values.data(), on_device, kBytes, cudaMemcpyDeviceToHost, stream);
  if (copied == cudaSuccess) copied = cudaStreamSynchronize(stream);
  if (!Succeeded(copied, "the result of a trial")) return false;
  for (int64_t i = 0; i < kTrialValues; ++i) {
    if (values[i] == TrialResult(options_.size, sum, i)) continue;
    meeting_.Refuse("a sum that it tried in the memory of its peers is wrong");
    return false;
  }
  return true;
}

// A kernel gives its wait up before this does.
bool RankInboxes::AwaitIdle(cudaStream_t stream) {
  constexpr double kGraceSeconds = 5;
  constexpr std::chrono::microseconds kPause{50};
  const Deadline end = DeadlineAfter(meeting_.SecondsLeft() + kGraceSeconds);
  cudaError_t error = cudaStreamQuery(stream);
  for (; error == cudaErrorNotReady && SecondsUntil(end) > 0; error = cudaStreamQuery(stream)) {
    std::this_thread::sleep_for(kPause);
  }
  kernel_hangs_ = error == cudaErrorNotReady;
  return Succeeded(error, "a trial");
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

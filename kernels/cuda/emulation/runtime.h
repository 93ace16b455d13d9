// The part of the CUDA runtime that our host code uses, answered by the emulator.
//
// Kernels and copies run to their end inside the call that enqueues them. As on a GPU, a kernel's
// fault is sticky: once one failed, everything on the stream returns that error. Beyond the
// runtime's own interface, a stream takes the schedule of its next launches and says why a kernel
// failed.
//
// Thread rule: a stream from one host thread at a time; several streams may run at once. Memory is
// the process's, and may be allocated and freed from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/emulation/schedule.h"
#include "kernels/cuda/launch/launch_shape.h"

namespace tessera::kernels::cuda::emulated {

// The runtime's names and numbers.
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureWrongThread = 908,
};

// The part of it that our host code reads.
struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount, l2CacheSize;
};

// What a test tells the runtime to do. Process-wide.
struct Injection {
  int64_t memory_bytes = int64_t{8} << 30;  // that the device has
  int64_t pinned_bytes = int64_t{8} << 30;  // of host memory that may be pinned
  int64_t graph_bytes = 0;                  // of its memory, that a graph takes
  // Which of the launches to come, on any stream and counted from 1, fails; 0: none does. From
  // IllegalAddress on an error is sticky, except for LaunchOutOfResources.
  int64_t failing_launch = 0;
  cudaError_t launch_error = cudaErrorIllegalAddress;
  // Counted alike: that which never ends, and whose stream runs nothing any more; 0: none.
  int64_t stalling_launch = 0;
  // Asked at each launch; where it is true, that launch fails with IllegalAddress. Null: none does.
  bool (*fails_now)() = nullptr;
  bool captures_fail = false;   // when they end
  bool vary_schedules = false;  // launch n of a stream runs under ScheduleFromSeed(n)
  // Launches are counted and checked, and write nothing: for tests of which kernels are chosen.
  bool runs_nothing = false;
  // How long a launch takes on a clock that only this moves and AdvanceClock does: events then tell
  // its time. `name`: the launch's file and line. Null: they tell the host's.
  double (*launch_seconds)(std::string_view name, const LaunchShape& shape) = nullptr;
};
void Inject(const Injection& injection);
// Moves the clock of Injection::launch_seconds on, for what a fake of a library computes.
void AdvanceClock(double seconds);

// Which GPU is emulated, one of kEmulatedCapabilities: it refuses blocks with more shared memory
// than a GPU of it has, and before 8.0 arithmetic in bf16. Process-wide, 90 until it is set; no
// Inject changes it. Before devices are made.
void SetCapability(int capability);

class EmulatedStream {
 public:
  void set_schedule(const Schedule& schedule) { schedule_ = schedule; }
  // The error of the first kernel that failed: Internal, naming where it was launched, block,
  // thread and wait.
  const absl::Status& failure() const { return failure_; }
  bool captures() const { return capture_ != nullptr; }

  // As the stream returns it for everything after a failure.
  cudaError_t sticky_error() const { return sticky_error_; }
  bool stalled() const { return stalled_; }

  // Runs thread() once for each thread of the shape, block after block, or, while launches are
  // captured, keeps it. The name stands for the kernel in errors. InvalidConfiguration where CUDA
  // would refuse the shape, and nothing runs.
  cudaError_t Launch(const std::string& name, const LaunchShape& shape,
                     const std::function<void()>& thread);
  // Launches that were captured, in their order.
  struct Graph {
    struct Node {
      std::string name;
      LaunchShape shape;
      std::function<void()> thread;
    };
    std::vector<Node> nodes;
    int64_t device_bytes = 0;  // that it takes, once it can be launched
  };
  void BeginCapture() { capture_ = std::make_unique<Graph>(); }
  std::unique_ptr<Graph> EndCapture() { return std::move(capture_); }

 private:
  void Fail(cudaError_t error, absl::Status failure);

  Schedule schedule_;
  absl::Status failure_;
  cudaError_t sticky_error_ = cudaSuccess;
  bool stalled_ = false;
  int64_t launches_ = 0;
  std::unique_ptr<Graph> capture_;  // null: nothing is captured
};

using cudaStream_t = EmulatedStream*;

enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice
};

const char* cudaGetErrorString(cudaError_t error);
// One.
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
// Nothing: no error is kept for it.
cudaError_t cudaGetLastError();
inline constexpr unsigned cudaStreamNonBlocking = 1;
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
// NotReady where it stalls, else what Synchronize returns.
cudaError_t cudaStreamQuery(cudaStream_t stream);
// Never returns where the stream stalls.
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
// A point of a stream: what the stream was when it was recorded. Where that stalled, it never
// happens. Before that, and behind a failure, as on a GPU: it has happened, or is that error.
struct EmulatedEvent {
  bool stalled = false;
  cudaError_t error = cudaSuccess;
  double seconds = 0;  // when it was recorded
};
using cudaEvent_t = EmulatedEvent*;
inline constexpr unsigned cudaEventDisableTiming = 2;
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaEventDestroy(cudaEvent_t event);
// Poisoned and guarded, see device_memory.h.
cudaError_t cudaMalloc(void** data, std::size_t size_bytes);
cudaError_t cudaFree(void* data);
// Host memory; what is pinned counts in PinnedBytes.
cudaError_t cudaMallocHost(void** data, std::size_t size_bytes);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size_bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size_bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);

// Graphs of launches. What is captured on a stream is not run; copies and waits are errors
// meanwhile, as they are with memory that is not pinned.
using cudaGraph_t = EmulatedStream::Graph*;
using cudaGraphExec_t = EmulatedStream::Graph*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags);
// MemoryAllocation above: there is no memory for it. Here: it is there already.
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
// So far; and how many are there now, of both kinds.
int64_t GraphsLaunched();
int64_t GraphsAlive();

// Launches so far whose call stands in this file ("gemm.cu"): which kernels were chosen.
int64_t LaunchesFrom(std::string_view file);
int64_t LaunchesMade();  // of all files
// Host memory that is pinned now.
int64_t PinnedBytes();
// Calls of cudaMalloc so far that gave memory.
int64_t AllocationsMade();
// Checks all memory from cudaMalloc, see DeviceMemory::CheckGuards.
absl::Status CheckMemoryGuards();

}  // namespace tessera::kernels::cuda::emulated

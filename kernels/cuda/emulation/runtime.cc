#include "kernels/cuda/emulation/runtime.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/emulation/block.h"
#include "kernels/cuda/emulation/device_memory.h"
#include "kernels/cuda/emulation/device_variables.h"
#include "kernels/cuda/emulation/devices.h"
#include "kernels/cuda/emulation/fibers.h"
#include "kernels/cuda/emulation/shared_memory.h"
#include "kernels/cuda/launch/gpu_limits.h"

namespace tessera::kernels::cuda::emulated {
namespace {

dim3 ToDim3(const LaunchShape::Extent& extent) {
  return {static_cast<unsigned>(extent.x), static_cast<unsigned>(extent.y),
          static_cast<unsigned>(extent.z)};
}

// The i-th block in the schedule's order is order[i] of all; empty stands for ascending.
std::vector<int64_t> BlockOrder(int64_t count, Order order, ScheduleRandom& random) {
  std::vector<int64_t> blocks;
  if (order == Order::kAscending) return blocks;
  blocks.resize(count);
  for (int64_t i = 0; i < count; ++i) blocks[i] = count - 1 - i;
  if (order == Order::kDescending) return blocks;
  for (int64_t i = count - 1; i > 0; --i) {
    std::swap(blocks[i], blocks[random.Below(static_cast<uint32_t>(i) + 1)]);
  }
  return blocks;
}

struct GlobalMemory {
  std::mutex mutex;
  DeviceMemory memory;
  Injection injection;
  int capability = 90;
  double clock_seconds = 0;                                   // of Injection::launch_seconds
  int64_t launches = 0;                                       // since the injection
  std::map<std::string, int64_t, std::less<>> launches_from;  // by file
  std::map<void*, int64_t> pinned;                            // sizes of what is pinned
  int64_t pinned_bytes = 0;
  int64_t graphs_launched = 0, graphs_alive = 0, graph_bytes = 0;

  int64_t free_bytes() const {
    return std::max<int64_t>(0, injection.memory_bytes - memory.live_bytes() - graph_bytes);
  }
};

GlobalMemory& Global() {
  static auto& memory = *new GlobalMemory;
  return memory;
}

// What the blocks that one host thread runs use in turn.
struct Multiprocessor {
  Fibers fibers;
  SharedMemory shared;
};

Multiprocessor& OfThisThread() {
  thread_local Multiprocessor multiprocessor;
  return multiprocessor;
}

// How the launch that begins now goes.
struct LaunchOrders {
  cudaError_t error = cudaSuccess;  // otherwise it runs, or stalls
  bool vary_schedules = false, runs_nothing = false, stalls = false;
};

LaunchOrders OrdersOf(const std::string& name, const LaunchShape& shape) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  ++Global().launches_from[name.substr(0, name.find(':'))];
  const Injection& injection = Global().injection;
  if (injection.launch_seconds != nullptr) {
    Global().clock_seconds += injection.launch_seconds(name, shape);
  }
  const int64_t launch = ++Global().launches;
  LaunchOrders orders = {.vary_schedules = injection.vary_schedules,
                         .runs_nothing = injection.runs_nothing,
                         .stalls = launch == injection.stalling_launch};
  if (launch == injection.failing_launch) orders.error = injection.launch_error;
  if (injection.fails_now != nullptr && injection.fails_now()) {
    orders.error = cudaErrorIllegalAddress;
  }
  return orders;
}

double EventSeconds() {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  if (Global().injection.launch_seconds != nullptr) return Global().clock_seconds;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int Capability() {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  return Global().capability;
}

bool IsSticky(cudaError_t error) {
  return error >= cudaErrorIllegalAddress && error != cudaErrorLaunchOutOfResources;
}

}  // namespace

void Inject(const Injection& injection) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  Global().injection = injection;
  Global().launches = 0;
}

void AdvanceClock(double seconds) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  Global().clock_seconds += seconds;
}

void SetCapability(int capability) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  Global().capability = capability;
}

void EmulatedStream::Fail(cudaError_t error, absl::Status failure) {
  failure_ = std::move(failure);
  sticky_error_ = error;
}

cudaError_t EmulatedStream::Launch(const std::string& name, const LaunchShape& shape,
                                   const std::function<void()>& thread) {
  if (!failure_.ok()) return sticky_error_;
  const int capability = Capability();
  if (!shape.IsLegal() || shape.shared_bytes > BlockSharedBytes(capability)) {
    return cudaErrorInvalidConfiguration;
  }
  if (stalled_) return cudaSuccess;  // queued behind what never ends
  if (capture_ != nullptr) {
    capture_->nodes.push_back({name, shape, thread});
    return cudaSuccess;
  }
  const LaunchOrders orders = OrdersOf(name, shape);
  stalled_ = orders.stalls;
  if (const cudaError_t error = orders.error; error != cudaSuccess) {
    if (IsSticky(error)) Fail(error, absl::InternalError(name + ": a test asked for this failure"));
    return error;
  }
  if (stalled_ || orders.runs_nothing) return cudaSuccess;
  if (orders.vary_schedules) schedule_ = ScheduleFromSeed(static_cast<uint64_t>(launches_++));
  ScheduleRandom random(schedule_.seed);
  const int64_t count = shape.blocks.count();
  const std::vector<int64_t> order = BlockOrder(count, schedule_.blocks, random);
  Multiprocessor& on = OfThisThread();
  Block block(name, shape, capability, schedule_, on.fibers, on.shared, random);
  blockDim = ToDim3(shape.threads);
  gridDim = ToDim3(shape.blocks);
  for (int64_t i = 0; i < count && failure_.ok(); ++i) {
    const int64_t at = order.empty() ? i : order[i];
    const auto [x, y, z] = shape.blocks;
    absl::Status status = block.Run({at % x, at / x % y, at / (x * y)}, thread);
    if (!status.ok()) Fail(cudaErrorLaunchFailure, std::move(status));
  }
  return sticky_error_;
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorLaunchOutOfResources: return "too many resources requested for launch";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureWrongThread:
      return "attempt to terminate a thread-local capture sequence from another thread";
  }
  return "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = CurrentPeers().devices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return ChooseDevice(device) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const int capability = Capability();
  *properties = {"CUDA emulator on the CPU", capability / 10, capability % 10, 1, 1 << 16};
  const bool is_one = device >= 0 && device < CurrentPeers().devices;
  return is_one ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new EmulatedStream;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream->captures()) return cudaErrorStreamCaptureUnsupported;
  return stream->stalled() ? cudaErrorNotReady : stream->sticky_error();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  while (stream->stalled()) std::this_thread::sleep_for(std::chrono::seconds(1));
  return stream->sticky_error();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  *event = {stream->stalled(), stream->sticky_error(), EventSeconds()};
  return event->error;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event->stalled ? cudaErrorNotReady : event->error;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = static_cast<float>(1e3 * (end->seconds - begin->seconds));
  return end->error;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, std::size_t size_bytes) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  if (static_cast<int64_t>(size_bytes) > Global().free_bytes()) return cudaErrorMemoryAllocation;
  std::byte* const made = Global().memory.Allocate(static_cast<int64_t>(size_bytes));
  TakeMemory(made, static_cast<int64_t>(size_bytes));
  *data = made;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  *total_bytes = static_cast<std::size_t>(Global().injection.memory_bytes);
  *free_bytes = static_cast<std::size_t>(Global().free_bytes());
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  if (data == nullptr) return cudaSuccess;
  if (!Global().memory.Free(static_cast<std::byte*>(data))) return cudaErrorInvalidValue;
  GiveMemoryBack(static_cast<std::byte*>(data));
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** data, std::size_t size_bytes) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  const auto bytes = static_cast<int64_t>(size_bytes);
  if (Global().pinned_bytes + bytes > Global().injection.pinned_bytes) {
    return cudaErrorMemoryAllocation;
  }
  *data = ::operator new (size_bytes, std::align_val_t{64});
  Global().pinned[*data] = bytes;
  Global().pinned_bytes += bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  const auto found = Global().pinned.find(data);
  if (found == Global().pinned.end()) return cudaErrorInvalidValue;
  Global().pinned_bytes -= found->second;
  Global().pinned.erase(found);
  ::operator delete (data, std::align_val_t{64});
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size_bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (!stream->failure().ok()) return stream->sticky_error();
  if (stream->captures()) return cudaErrorStreamCaptureUnsupported;
  if (stream->stalled()) return cudaSuccess;
  return cudaMemcpy(to, from, size_bytes, cudaMemcpyDeviceToDevice);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size_bytes, cudaMemcpyKind) {
  if (size_bytes > 0) std::memcpy(to, from, size_bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->captures()) return cudaErrorStreamCaptureUnsupported;
  stream->BeginCapture();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!stream->captures()) return cudaErrorInvalidValue;
  std::unique_ptr<EmulatedStream::Graph> captured = stream->EndCapture();
  const std::lock_guard<std::mutex> lock(Global().mutex);
  if (Global().injection.captures_fail) return cudaErrorStreamCaptureInvalidated;
  ++Global().graphs_alive;
  *graph = captured.release();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  const int64_t bytes = Global().injection.graph_bytes;
  if (bytes > Global().free_bytes()) return cudaErrorMemoryAllocation;
  ++Global().graphs_alive;
  Global().graph_bytes += bytes;
  *exec = new EmulatedStream::Graph(*graph);
  (*exec)->device_bytes = bytes;
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) { return stream->sticky_error(); }

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  {
    const std::lock_guard<std::mutex> lock(Global().mutex);
    ++Global().graphs_launched;
  }
  for (const auto& node : exec->nodes) {
    const cudaError_t error = stream->Launch(node.name, node.shape, node.thread);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  --Global().graphs_alive;
  Global().graph_bytes -= graph->device_bytes;
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return cudaGraphDestroy(exec); }

int64_t GraphsLaunched() {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  return Global().graphs_launched;
}

int64_t GraphsAlive() {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  return Global().graphs_alive;
}

int64_t PinnedBytes() {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  return Global().pinned_bytes;
}

int64_t LaunchesFrom(std::string_view file) {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  const auto found = Global().launches_from.find(file);
  return found == Global().launches_from.end() ? 0 : found->second;
}

int64_t LaunchesMade() {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  int64_t all = 0;
  for (const auto& [file, launches] : Global().launches_from) all += launches;
  return all;
}

int64_t AllocationsMade() {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  return Global().memory.allocations();
}

absl::Status CheckMemoryGuards() {
  const std::lock_guard<std::mutex> lock(Global().mutex);
  return Global().memory.CheckGuards();
}

}  // namespace tessera::kernels::cuda::emulated

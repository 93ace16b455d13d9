#include "kernels/cuda/device/cuda_stream.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "kernels/cpu/futex.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point End(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

struct CopyParams {
  void* to;
  const void* from;
  int64_t size_bytes;
  cudaMemcpyKind kind;
};

cudaError_t StartCopy(const CopyParams& params, cudaStream_t stream) {
  return cudaMemcpyAsync(params.to, params.from, static_cast<size_t>(params.size_bytes),
                         params.kind, stream);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(int device_index,
                                                               CudaHealth* health) {
  if (absl::Status lost = health->lost(); !lost.ok()) return lost;
  cudaStream_t stream = nullptr;
  absl::Status status = health->Check(cudaSetDevice(device_index), "choosing the device");
  if (status.ok()) {
    status =
        health->Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  }
  if (!status.ok()) return status;
  std::unique_ptr<CudaStream> made(new CudaStream(device_index, health, stream));
  for (MarkedPoint& mark : made->marks_) {
    status.Update(health->Check(cudaEventCreateWithFlags(&mark.event, cudaEventDisableTiming),
                                "making an event"));
  }
  void* arrivals = nullptr;
  const std::vector<int32_t> zeros(kMaxSplitTiles + 1);
  const size_t bytes = zeros.size() * sizeof(int32_t);
  status.Update(health->Check(cudaMalloc(&arrivals, bytes), "memory of a stream"));
  if (status.ok()) {
    made->arrivals_ = static_cast<int32_t*>(arrivals);
    status = health->Check(cudaMemcpy(arrivals, zeros.data(), bytes, cudaMemcpyHostToDevice),
                           "memory of a stream");
  }
  if (!status.ok()) return status;
  try {
    made->runner_ = std::thread([s = made.get()] { s->Loop(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        StrCat(health->device(), ": cannot start the thread of a stream: ", error.what()));
  }
  return made;
}

CudaStream::~CudaStream() {
  if (runner_.joinable()) {
    // A lost device may keep the runner in a call for ever; the process is about to end then.
    while (!WaitHandedOn(submitted_.load(std::memory_order_relaxed)).ok()) {
    }
    ring_[submitted_.load(std::memory_order_relaxed) % kRingRecords].run = nullptr;
    Submit();
    runner_.join();
  }
  // A sum whose rank never comes ends with its group.
  (void)WaitIdle(stream_, *health_, "the end of a stream", [this](double s) { TellWaiting(s); });
  for (const MarkedPoint& mark : marks_) {
    if (mark.event != nullptr) cudaEventDestroy(mark.event);
  }
  cudaFree(arrivals_);
  cudaStreamDestroy(stream_);
}

absl::Status CudaStream::Synchronize() {
  absl::Status done = WaitHandedOn(submitted_.load(std::memory_order_relaxed));
  if (!done.ok()) return done;
  // Also after a failure: what was handed on before it must be over when the caller goes on.
  done = WaitIdle(stream_, *health_, "Synchronize", [this](double s) { TellWaiting(s); });
  if (done.ok()) done = Reported();
  absl::Status failure = std::exchange(failure_, absl::OkStatus());
  if (absl::Status lost = health_->lost(); !lost.ok()) return lost;
  failure.Update(std::move(done));
  return failure;
}

absl::Status CudaStream::EnqueueHostWork(HostWork work, const void* arguments, int64_t size_bytes) {
  if (size_bytes < 0 || size_bytes > kMaxHostArgumentBytes) {
    return absl::InvalidArgumentError(StrCat(
        "host work with ", size_bytes, " bytes of arguments; at most ", kMaxHostArgumentBytes));
  }
  Record* const next = NextRecord();
  if (next == nullptr) return health_->lost();
  Record& record = *next;
  record.run = [](const Record& r, CudaStream& stream) {
    absl::Status status = WaitIdle(stream.stream_, *stream.health_, "work before host work",
                                   [&stream](double s) { stream.TellWaiting(s); });
    if (status.ok()) status = stream.Reported();
    if (!status.ok()) return status;
    stream.in_host_work_ = true;
    status = reinterpret_cast<HostWork>(r.call)(r.arguments.data());
    stream.in_host_work_ = false;
    return status;
  };
  record.behind_failure = false;
  record.call = reinterpret_cast<void (*)()>(work);
  std::memcpy(record.arguments.data(), arguments, static_cast<size_t>(size_bytes));
  Submit();
  return absl::OkStatus();
}

absl::Status CudaStream::Copy(void* to, const void* from, int64_t size_bytes, cudaMemcpyKind kind) {
  const bool fits = size_bytes >= 0 && (size_bytes == 0 || (to != nullptr && from != nullptr));
  if (!fits) {
    return absl::InvalidArgumentError(
        StrCat("Copy: ", size_bytes, " bytes; needs two addresses and a size of 0 or more"));
  }
  if (size_bytes > 0) Enqueue<CopyParams>("Copy", &StartCopy, {to, from, size_bytes, kind});
  return absl::OkStatus();
}

absl::Status CudaStream::CopyToDevice(void* device_dst, const void* host_src, int64_t size_bytes) {
  return Copy(device_dst, host_src, size_bytes, cudaMemcpyHostToDevice);
}

absl::Status CudaStream::CopyToHost(void* host_dst, const void* device_src, int64_t size_bytes) {
  return Copy(host_dst, device_src, size_bytes, cudaMemcpyDeviceToHost);
}

CudaStream::Record* CudaStream::NextRecord() {
  const uint32_t index = submitted_.load(std::memory_order_relaxed);
  if (!WaitHandedOn(index - kRingRecords + 1).ok()) return nullptr;
  return &ring_[index % kRingRecords];
}

void CudaStream::Submit() {
  submitted_.fetch_add(1);
  submitted_.notify_one();
}

absl::Status CudaStream::WaitHandedOn(uint32_t target) {
  uint32_t handed_on = handed_on_.load();
  const auto reached = [&] { return static_cast<int32_t>(handed_on - target) >= 0; };
  if (reached()) return absl::OkStatus();
  sleepers_.fetch_add(1);
  Clock::time_point end = End(health_->max_wait_seconds());
  absl::Status status;
  while (status.ok()) {
    const uint32_t before = std::exchange(handed_on, handed_on_.load());
    if (reached()) break;
    // The runner waits for the GPU in bounded time, but CUDA may keep it in a launch.
    if (before != handed_on || in_host_work_) end = End(health_->max_wait_seconds());
    FutexWait(handed_on_, handed_on);
    if (Clock::now() > end) status = health_->LoseAfterWait("a launch");
  }
  sleepers_.fetch_sub(1);
  return status;
}

bool CudaStream::Replay(const Key& key) {
  CudaGraphs::Graph* const graph = graphs_.FindKept(key);
  if (graph == nullptr) return false;
  EnqueueGraph(
      [](const Record& record, CudaStream& stream) {
        const auto& call = *reinterpret_cast<const GraphCall*>(record.arguments.data());
        return stream.health_->Check(cudaGraphLaunch(call.graph->graph, stream.stream_), "a graph",
                                     stream.stream_);
      },
      {graph, true});
  return true;
}

void CudaStream::BeginRecording(const Key& key) {
  std::unique_ptr<CudaGraphs::Graph> evicted;
  recording_ = graphs_.ToRecord(key, &evicted);
  if (recording_ == nullptr) return;
  if (evicted != nullptr) {
    const auto give_way = [](const Record& record, CudaStream& stream) {
      const auto& call = *reinterpret_cast<const GraphCall*>(record.arguments.data());
      stream.graphs_.Free(std::unique_ptr<CudaGraphs::Graph>(call.graph));
      return stream.failure_;
    };
    // Not where the device is lost: then launches may hold it until the process ends.
    EnqueueGraph(give_way, {evicted.release(), true}, true);
  }
  EnqueueGraph(
      [](const Record&, CudaStream& stream) {
        // Where CUDA refuses, the launches just run.
        stream.captures_ =
            cudaStreamBeginCapture(stream.stream_, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
        return absl::OkStatus();
      },
      {recording_, true});
}

void CudaStream::EndRecording(bool whole) {
  CudaGraphs::Graph* const graph = std::exchange(recording_, nullptr);
  if (graph == nullptr) return;
  EnqueueGraph(
      [](const Record& record, CudaStream& stream) {
        const auto& call = *reinterpret_cast<const GraphCall*>(record.arguments.data());
        return stream.EndCapture(*call.graph, call.whole);
      },
      {graph, whole}, true);
}

void CudaStream::EnqueueGraph(absl::Status (*run)(const Record& record, CudaStream& stream),
                              const GraphCall& call, bool behind_failure) {
  Record* const record = NextRecord();
  if (record == nullptr) return;  // Synchronize says why
  record->run = run;
  record->behind_failure = behind_failure;
  std::memcpy(record->arguments.data(), &call, sizeof call);
  Submit();
}

void CudaStream::Mark(int index) {
  MarkedPoint& mark = marks_[index];
  Record* const record = NextRecord();
  mark.end = submitted_.load(std::memory_order_relaxed);
  if (record == nullptr) return;  // the device is lost, and WaitMark says so
  ++mark.end;
  record->run = [](const Record& r, CudaStream& stream) {
    MarkedPoint& marked = **reinterpret_cast<MarkedPoint* const*>(r.arguments.data());
    marked.failure = stream.failure_;
    if (marked.failure.ok()) {
      marked.failure =
          stream.health_->Check(cudaEventRecord(marked.event, stream.stream_), "a mark");
    }
    return marked.failure;
  };
  record->behind_failure = true;
  MarkedPoint* const marked = &mark;
  std::memcpy(record->arguments.data(), &marked, sizeof marked);
  Submit();
}

absl::Status CudaStream::WaitMark(int index) {
  const MarkedPoint& mark = marks_[index];
  absl::Status done = WaitHandedOn(mark.end);
  if (done.ok()) done = health_->lost();
  if (done.ok()) done = mark.failure;
  if (done.ok()) {
    done = WaitEvent(mark.event, stream_, *health_, "a mark", [this](double s) { TellWaiting(s); });
  }
  return done.ok() ? Reported() : done;
}

bool CudaStream::Passed(int index) {
  const MarkedPoint& mark = marks_[index];
  if (static_cast<int32_t>(handed_on_.load() - mark.end) < 0) return false;
  return !mark.failure.ok() || cudaEventQuery(mark.event) != cudaErrorNotReady;
}

void CudaStream::Watch(const std::shared_ptr<const KernelReports>& reports) {
  const std::lock_guard<std::mutex> lock(reports_mutex_);
  if (std::find(reports_.begin(), reports_.end(), reports) != reports_.end()) return;
  std::erase_if(reports_, [](const auto& watched) { return watched.use_count() == 1; });
  reports_.push_back(reports);
}

absl::Status CudaStream::Reported() const {
  const std::lock_guard<std::mutex> lock(reports_mutex_);
  for (const auto& reports : reports_) {
    if (absl::Status failure = reports->failure(); !failure.ok()) return failure;
  }
  return absl::OkStatus();
}

void CudaStream::TellWaiting(double seconds) const {
  const std::lock_guard<std::mutex> lock(reports_mutex_);
  for (const auto& reports : reports_) {
    if (reports != nullptr) reports->WhileWaiting(seconds);
  }
}

absl::Status CudaStream::EndCapture(CudaGraphs::Graph& graph, bool whole) {
  if (!std::exchange(captures_, false)) {
    // After a failure it never began; else CUDA did not let it.
    if (failure_.ok()) graphs_.GiveUp();
    return failure_;
  }
  if (!capture_failure_.ok()) graphs_.GiveUp();
  const bool kept = graphs_.Keep(stream_, whole && capture_failure_.ok(), graph);
  capture_failure_ = absl::OkStatus();
  const std::vector<Record> captured = std::exchange(captured_, {});
  if (kept) {
    return health_->Check(cudaGraphLaunch(graph.graph, stream_), "a graph", stream_);
  }
  for (const Record& record : captured) {
    absl::Status status = record.run(record, *this);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void CudaStream::Run(const Record& record) {
  if (record.behind_failure) {
    failure_ = record.run(record, *this);
  } else if (captures_) {
    captured_.push_back(record);
    if (capture_failure_.ok()) capture_failure_ = record.run(record, *this);
  } else if (failure_.ok()) {
    failure_ = record.run(record, *this);
  }
}

void CudaStream::Loop() {
  failure_ = health_->Check(cudaSetDevice(device_index_), "choosing the device");
  for (uint32_t next = 0;; ++next) {
    submitted_.wait(next);
    const Record& record = ring_[next % kRingRecords];
    if (record.run == nullptr) return;
    Run(record);
    handed_on_.fetch_add(1);
    if (sleepers_.load() > 0) FutexWake(handed_on_, 1);
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

#include "kernels/cuda/device/cuda_stream.h"

#include <system_error>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

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
    NextRecord().run = nullptr;
    Submit();
    runner_.join();
    cudaStreamSynchronize(stream_);
  }
  cudaStreamDestroy(stream_);
}

absl::Status CudaStream::Synchronize() {
  WaitHandedOn(submitted_.load(std::memory_order_relaxed));
  // Also after a failure: what was handed on before it must be over when the caller goes on.
  absl::Status done = health_->Check(cudaStreamSynchronize(stream_), "Synchronize", stream_);
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
  Record& record = NextRecord();
  record.run = [](const Record& r, CudaStream& stream) {
    absl::Status status = stream.health_->Check(cudaStreamSynchronize(stream.stream_),
                                                "work before host work", stream.stream_);
    return status.ok() ? reinterpret_cast<HostWork>(r.call)(r.arguments.data()) : status;
  };
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

CudaStream::Record& CudaStream::NextRecord() {
  const uint32_t index = submitted_.load(std::memory_order_relaxed);
  WaitHandedOn(index - kRingRecords + 1);
  return ring_[index % kRingRecords];
}

void CudaStream::Submit() {
  submitted_.fetch_add(1);
  submitted_.notify_one();
}

void CudaStream::WaitHandedOn(uint32_t target) {
  while (true) {
    const uint32_t handed_on = handed_on_.load();
    if (static_cast<int32_t>(handed_on - target) >= 0) return;
    handed_on_.wait(handed_on);
  }
}

void CudaStream::Loop() {
  failure_ = health_->Check(cudaSetDevice(device_index_), "choosing the device");
  for (uint32_t next = 0;; ++next) {
    submitted_.wait(next);
    const Record& record = ring_[next % kRingRecords];
    if (record.run == nullptr) return;
    if (failure_.ok()) failure_ = record.run(record, *this);
    handed_on_.fetch_add(1);
    handed_on_.notify_one();
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

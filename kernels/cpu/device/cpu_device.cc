#include "kernels/cpu/device/cpu_device.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/device/cpu_ops.h"
#include "kernels/cpu/thread_pool.h"
#include "third_party/absl/str_cat.h"
#include "third_party/linux/cpu_share.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePageBytes = 2 << 20;
constexpr int64_t kMappedFromBytes = kHugePageBytes;  // smaller buffers come from the heap

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Whole, aligned huge pages; nothing is touched yet. Null when the system has no more.
std::byte* MapHuge(int64_t size_bytes) {
  const int64_t want = RoundUp(size_bytes, kHugePageBytes);
  const int64_t reserved = want + kHugePageBytes;
  void* base = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(base);
  const int64_t lead =
      RoundUp(static_cast<int64_t>(reinterpret_cast<uintptr_t>(base)), kHugePageBytes) -
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(base));
  if (lead > 0) munmap(begin, lead);
  munmap(begin + lead + want, kHugePageBytes - lead);
  madvise(begin + lead, want, MADV_HUGEPAGE);  // a wish: refused where the feature is off
  return begin + lead;
}

class CpuDevice final : public Device {
 public:
  CpuDevice(CpuDeviceOptions options, std::unique_ptr<ThreadPool> pool)
      : options_(std::move(options)), pool_(std::move(pool)), ops_(options_.isa, pool_.get()) {}

  std::string Describe() const override {
    return StrCat("cpu, cores ", CpuList(options_.cores), options_.cores_shared ? " (shared)" : "",
                  ", ", options_.memory_bytes >> 20, " MiB, ", Name(options_.isa), " kernels");
  }
  int64_t memory_bytes() const override { return options_.memory_bytes; }
  int host_threads() const override { return pool_->threads(); }
  Ops& ops() override { return ops_; }

  absl::StatusOr<Buffer> Allocate(int64_t size_bytes) override;
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    return CpuStream::Create(pool_.get());
  }

 private:
  void Free(std::byte* data, int64_t size_bytes) override;
  absl::Status Exhausted(int64_t size_bytes, int64_t used_bytes) const;

  const CpuDeviceOptions options_;
  const std::unique_ptr<ThreadPool> pool_;
  CpuOps ops_;
  std::atomic<int64_t> used_bytes_{0};
};

absl::Status CpuDevice::Exhausted(int64_t size_bytes, int64_t used_bytes) const {
  return absl::ResourceExhaustedError(
      StrCat("CPU device: asked for ", size_bytes, " bytes, available are ",
             options_.memory_bytes - used_bytes, " of ", options_.memory_bytes,
             "; give the device more memory, or a smaller model or KV pool"));
}

absl::StatusOr<Buffer> CpuDevice::Allocate(int64_t size_bytes) {
  if (size_bytes < 0) {
    return absl::InvalidArgumentError(StrCat("CPU device: asked for ", size_bytes, " bytes"));
  }
  int64_t used = used_bytes_.load();
  do {
    if (size_bytes > options_.memory_bytes - used) return Exhausted(size_bytes, used);
  } while (!used_bytes_.compare_exchange_weak(used, used + size_bytes));
  std::byte* data = size_bytes >= kMappedFromBytes
                        ? MapHuge(size_bytes)
                        : static_cast<std::byte*>(std::aligned_alloc(
                              kAlignment, RoundUp(std::max<int64_t>(size_bytes, 1), kAlignment)));
  if (data == nullptr) {
    used_bytes_.fetch_sub(size_bytes);
    return Exhausted(size_bytes, used);
  }
  return Buffer(this, data, size_bytes);
}

void CpuDevice::Free(std::byte* data, int64_t size_bytes) {
  if (size_bytes >= kMappedFromBytes) {
    munmap(data, RoundUp(size_bytes, kHugePageBytes));
  } else {
    std::free(data);
  }
  used_bytes_.fetch_sub(size_bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options) {
  if (!IsSupported(options.isa, DetectCpuFeatures())) {
    return absl::FailedPreconditionError(
        StrCat("CPU device: this processor cannot run the ", Name(options.isa), " kernels"));
  }
  CpuDeviceOptions complete = options;
  const CpuShare share = ReadCpuShare(AffinityCores());
  if (complete.cores.empty()) complete.cores = share.cores;
  if (complete.memory_bytes == 0) complete.memory_bytes = share.memory_bytes;
  if (complete.memory_bytes <= 0) {
    return absl::InvalidArgumentError(
        StrCat("CPU device: ", complete.memory_bytes, " bytes of memory; give it more than 0"));
  }
  auto pool = ThreadPool::Create({.cores = complete.cores, .cores_shared = complete.cores_shared});
  if (!pool.ok()) return pool.status();
  return std::make_unique<CpuDevice>(std::move(complete), *std::move(pool));
}

}  // namespace tessera::kernels

#include "worker/emulation/emulated_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "kernels/cpu/device/cpu_device.h"
#include "third_party/absl/str_cat.h"
#include "third_party/linux/cpu_share.h"

namespace tessera::worker {
namespace {

constexpr int64_t kHostBytes = int64_t{64} << 20;

class EmulatedDevice final : public kernels::Device {
 public:
  EmulatedDevice(std::string kind, int64_t memory_bytes, std::unique_ptr<kernels::Device> host)
      : kind_(std::move(kind)), memory_bytes_(memory_bytes), host_(std::move(host)) {}

  std::string Describe() const override {
    return StrCat("emulated ", kind_, ", ", memory_bytes_ >> 20,
                  " MiB that are only counted: it computes nothing");
  }
  int64_t memory_bytes() const override { return memory_bytes_; }
  int host_threads() const override { return 1; }
  absl::StatusOr<kernels::Buffer> Allocate(int64_t size_bytes) override {
    const int64_t used = used_bytes_.fetch_add(size_bytes);
    if (size_bytes < 0 || used + size_bytes > memory_bytes_) {
      used_bytes_.fetch_sub(size_bytes);
      return absl::ResourceExhaustedError(StrCat("emulated ", kind_, ": asked for ", size_bytes,
                                                 " bytes, available are ", memory_bytes_ - used,
                                                 " of ", memory_bytes_));
    }
    void* memory = mmap(nullptr, Mapped(size_bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      used_bytes_.fetch_sub(size_bytes);
      return absl::ResourceExhaustedError(
          StrCat("emulated ", kind_, ": this machine gives no ", size_bytes,
                 " bytes of addresses, which take no memory: see ulimit -v and "
                 "/proc/sys/vm/overcommit_memory"));
    }
    return kernels::Buffer(this, static_cast<std::byte*>(memory), size_bytes);
  }
  absl::StatusOr<std::unique_ptr<kernels::Stream>> CreateStream() override {
    return host_->CreateStream();
  }
  kernels::Ops& ops() override { return host_->ops(); }

 private:
  static size_t Mapped(int64_t size_bytes) {
    return static_cast<size_t>(std::max<int64_t>(1, size_bytes));
  }
  void Free(std::byte* data, int64_t size_bytes) override {
    munmap(data, Mapped(size_bytes));
    used_bytes_.fetch_sub(size_bytes);
  }

  const std::string kind_;
  const int64_t memory_bytes_;
  const std::unique_ptr<kernels::Device> host_;
  std::atomic<int64_t> used_bytes_{0};
};

}  // namespace

absl::StatusOr<std::unique_ptr<kernels::Device>> CreateEmulatedDevice(const std::string& kind,
                                                                      int64_t memory_bytes) {
  auto host = kernels::CreateCpuDevice({.cores = {AffinityCores().front()},
                                        .memory_bytes = kHostBytes,
                                        .isa = kernels::Isa::kReference,
                                        .cores_shared = true});
  if (!host.ok()) return host.status();
  return std::make_unique<EmulatedDevice>(kind, memory_bytes, *std::move(host));
}

}  // namespace tessera::worker

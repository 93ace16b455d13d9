#include "kernels/cuda/emulation/fibers.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace tessera::kernels::cuda::emulated {
namespace {

constexpr std::size_t kPageBytes = 4096;
#ifdef __OPTIMIZE__
constexpr std::size_t kStackBytes = 64 << 10;
#else
constexpr std::size_t kStackBytes = 256 << 10;
#endif

// Where tops of stacks at the same place of a page would push each other out of the cache.
constexpr std::size_t kTopSpreadBytes = 320;
constexpr int kTopSpreads = 8;

thread_local Fibers* current = nullptr;

}  // namespace

struct Fibers::Fiber {
  explicit Fiber(int index) : index(index) {
    void* memory = mmap(nullptr, kStackBytes + kPageBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, kPageBytes, PROT_NONE) != 0) {
      std::fprintf(stderr, "CUDA emulator: no memory for the stack of thread %d\n", index);
      std::abort();
    }
    stack = static_cast<std::byte*>(memory) + kPageBytes;
#ifdef __SANITIZE_THREAD__
    tsan_fiber = __tsan_create_fiber(0);
#endif
  }
  ~Fiber() {
#ifdef __SANITIZE_THREAD__
    __tsan_destroy_fiber(tsan_fiber);
#endif
    munmap(stack - kPageBytes, kStackBytes + kPageBytes);
  }

  const int index;
  std::byte* stack = nullptr;
  boost::context::detail::fcontext_t context = nullptr;
  Entry entry = nullptr;
  void* argument = nullptr;
  void* fake_stack = nullptr;
  void* tsan_fiber = nullptr;
};

Fibers::Fibers() = default;
Fibers::~Fibers() = default;

void Fibers::Reserve(int count) {
  while (static_cast<int>(fibers_.size()) < count) {
    fibers_.push_back(std::make_unique<Fiber>(static_cast<int>(fibers_.size())));
  }
}

void Fibers::Start(int index, Entry entry, void* argument) {
  Fiber& fiber = *fibers_[index];
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(fiber.stack, kStackBytes);
#endif
  fiber.entry = entry;
  fiber.argument = argument;
  fiber.fake_stack = nullptr;
  const std::size_t bytes = kStackBytes - kTopSpreadBytes * (index % kTopSpreads);
  fiber.context = boost::context::detail::make_fcontext(fiber.stack + bytes, bytes, [](auto from) {
    current->scheduler_context_ = from.fctx;
    Begin();
  });
}

void Fibers::Begin() {
  Fibers& fibers = *current;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, &fibers.scheduler_stack_,
                                  &fibers.scheduler_stack_bytes_);
#endif
  const Fiber& fiber = *fibers.fibers_[fibers.running_];
  fiber.entry(fiber.argument);
  std::abort();
}

void Fibers::Resume(int index) {
  Fiber& fiber = *fibers_[index];
  running_ = index;
  Fibers* const outer = current;
  current = this;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&scheduler_fake_stack_, fiber.stack, kStackBytes);
#endif
#ifdef __SANITIZE_THREAD__
  scheduler_tsan_fiber_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber.tsan_fiber, 0);
#endif
  fiber.context = boost::context::detail::jump_fcontext(fiber.context, nullptr).fctx;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#endif
  current = outer;
  running_ = -1;
}

void Fibers::Suspend() {
  Fiber& fiber = *fibers_[running_];
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&fiber.fake_stack, scheduler_stack_, scheduler_stack_bytes_);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(scheduler_tsan_fiber_, 0);
#endif
  scheduler_context_ = boost::context::detail::jump_fcontext(scheduler_context_, nullptr).fctx;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fiber.fake_stack, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
}

}  // namespace tessera::kernels::cuda::emulated

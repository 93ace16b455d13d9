#include "kernels/cuda/emulation/fibers.h"

#include <sys/mman.h>

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

#ifndef __x86_64__
#error "the CUDA emulator switches stacks with x86-64 instructions"
#endif

// Saves the registers that a callee must keep, stores the stack pointer in *save, and goes on where
// `load` was saved.
extern "C" void tessera_cuda_emulation_switch(void** save, void* load);
asm(R"(
.text
.type tessera_cuda_emulation_switch,@function
tessera_cuda_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tessera_cuda_emulation_switch, .-tessera_cuda_emulation_switch
)");

namespace tessera::kernels::cuda::emulated {
namespace {

constexpr std::size_t kPageBytes = 4096;
#ifdef __OPTIMIZE__
constexpr std::size_t kStackBytes = 64 << 10;
#else
constexpr std::size_t kStackBytes = 256 << 10;
#endif
constexpr int kSavedRegisters = 6;

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
  void* stack_pointer = nullptr;
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
  auto* top = reinterpret_cast<uint64_t*>(fiber.stack + kStackBytes -
                                          kTopSpreadBytes * (index % kTopSpreads) - 64);
  // As after a call: the address that Begin would return to, at a multiple of 16 less 8.
  *--top = 0;
  *--top = reinterpret_cast<uint64_t>(&Begin);
  for (int i = 0; i < kSavedRegisters; ++i) *--top = 0;
  fiber.stack_pointer = top;
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
  tessera_cuda_emulation_switch(&scheduler_stack_pointer_, fiber.stack_pointer);
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
  tessera_cuda_emulation_switch(&fiber.stack_pointer, scheduler_stack_pointer_);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fiber.fake_stack, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
}

}  // namespace tessera::kernels::cuda::emulated

// Stacks of their own for the threads of an emulated block, which take turns on one host thread.
//
// The scheduler resumes a fiber; the fiber runs until it suspends itself. Stacks are kept and used
// again: a fiber that never ended is forgotten by starting another in its place, so what runs on it
// must own nothing. A stack that overflows ends in a page that faults. Boost.Context's fcontext
// does the switch: its fiber would unwind a stack that is forgotten.
//
// Thread rule: all calls from one host thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace tessera::kernels::cuda::emulated {

class Fibers {
 public:
  using Entry = void (*)(void* argument);

  Fibers();
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  // At least `count` fibers; only while none runs.
  void Reserve(int count);
  // Fiber `index` runs entry(argument) when it is resumed next. `entry` must not return: its last
  // act is a Suspend after which it is not resumed.
  void Start(int index, Entry entry, void* argument);
  // The scheduler's call: runs the fiber until it suspends.
  void Resume(int index);
  // The running fiber's call: back to the scheduler.
  void Suspend();

 private:
  struct Fiber;
  static void Begin();

  std::vector<std::unique_ptr<Fiber>> fibers_;
  int running_ = -1;
  void* scheduler_context_ = nullptr;
  // What the sanitizers want to know of the scheduler's own stack.
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_bytes_ = 0;
  void* scheduler_tsan_fiber_ = nullptr;
};

}  // namespace tessera::kernels::cuda::emulated

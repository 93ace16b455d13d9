#include "kernels/cpu/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace tessera::kernels {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
static_assert(std::atomic<uint32_t>::is_always_lock_free);

uint32_t* Address(const std::atomic<uint32_t>& word) {
  return reinterpret_cast<uint32_t*>(const_cast<std::atomic<uint32_t>*>(&word));
}

}  // namespace

void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, FutexScope scope) {
  constexpr auto nanoseconds = std::chrono::nanoseconds(kLongestSleep).count();
  const timespec timeout = {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  const int operation = scope == FutexScope::kShared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE;
  syscall(SYS_futex, Address(word), operation, expected, &timeout, nullptr, 0);
}

void FutexWake(const std::atomic<uint32_t>& word, int count, FutexScope scope) {
  const int operation = scope == FutexScope::kShared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE;
  syscall(SYS_futex, Address(word), operation, count, nullptr, nullptr, 0);
}

}  // namespace tessera::kernels

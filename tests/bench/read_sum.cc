#include "tests/bench/read_sum.h"

#include <immintrin.h>

#include <chrono>
#include <vector>

#include "kernels/cpu/isa.h"

namespace tessera::bench {
namespace {

double Seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// The widest loads keep the most lines in flight; 4 KB ahead, as the kernels do.
__attribute__((target("avx512f"))) uint64_t Sum512(const std::byte* memory, int64_t size_bytes) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < size_bytes; i += 64) {
    __builtin_prefetch(memory + i + 4096);
    sum = _mm512_add_epi64(sum, _mm512_loadu_si512(memory + i));
  }
  alignas(64) uint64_t words[8];
  _mm512_store_si512(words, sum);
  return words[0] + words[7];
}

__attribute__((target("avx2"))) uint64_t Sum256(const std::byte* memory, int64_t size_bytes) {
  __m256i sum = _mm256_setzero_si256();
  for (int64_t i = 0; i < size_bytes; i += 32) {
    __builtin_prefetch(memory + i + 4096);
    const __m256i next = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(memory + i));
    sum = _mm256_add_epi64(sum, next);
  }
  alignas(32) uint64_t words[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), sum);
  return words[0] + words[3];
}

}  // namespace

double ReadSeconds(const std::byte* memory, int64_t size_bytes, kernels::ThreadPool& pool) {
  constexpr int64_t kPieceBytes = 1 << 20;
  const auto sum = kernels::DetectCpuFeatures().avx512 ? &Sum512 : &Sum256;
  std::vector<uint64_t> sums(pool.threads() * 8);
  const double start = Seconds();
  pool.ParallelFor(size_bytes / kPieceBytes, [&](int64_t piece, int member) {
    sums[member * 8] += sum(memory + piece * kPieceBytes, kPieceBytes);
  });
  const double seconds = Seconds() - start;
  volatile uint64_t kept = sums[0];
  static_cast<void>(kept);
  return seconds;
}

}  // namespace tessera::bench

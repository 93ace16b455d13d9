// A kernel with the habits of real ones (paged reads, a pipeline of asynchronous copies, a causal
// limit, rows beyond the end), and one bug of each class that the emulator has to show.
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/warp_ops.h"
#include "tests/kernels/cuda/emulation/every_schedule.h"

namespace tessera::kernels::cuda::emulated {
namespace {

enum class Bug {
  kNone,
  kMissingWait,          // the tile is read before its copy has landed
  kMissingBarrier,       // ... before other lanes' copies are visible
  kMissingReuseBarrier,  // a stage is filled again while other warps read it
  kOffByOne,             // a row sees the value behind its own
  kStaleBlock,           // the block table's entry of the tile before
  kUnwrittenOutput,      // rows of the last, partial tile
  kWriteBeyondEnd,       // one row more than there are
};

constexpr int kRows = 64;  // of a block, a thread each
constexpr int kTile = 32;  // values of a page, 8 copies of 16 bytes
constexpr int kStages = 2;

// out[i] = values[0] + ... + values[i], in this order; values are paged.
struct PrefixSums {
  float* out;          // [length]
  const float* pages;  // [pages, kTile]
  const int* table;    // page of each tile
  int length;
};

template <Bug bug>
void PrefixSumsKernel(PrefixSums p) {
  TESSERA_SHARED(float, stages, kStages* kTile);
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = static_cast<int>(blockIdx.x) * kRows, row = first_row + thread;
  const int last_row = min(first_row + kRows, p.length) - 1;
  const int tiles = last_row / kTile + 1;
  const auto load = [&](int tile) {
    if (thread < 8 && tile < tiles) {
      const int entry = bug == Bug::kStaleBlock ? max(tile - 1, 0) : tile;
      CopyAsync16(stages + tile % kStages * kTile + thread * 4,
                  p.pages + p.table[entry] * kTile + thread * 4, true);
    }
    CommitCopies();
  };
  float sum = 0;
  load(0);
  for (int tile = 0; tile < tiles; ++tile) {
    load(tile + 1);
    if (bug != Bug::kMissingWait) WaitCopies<1>();
    if (bug != Bug::kMissingBarrier) __syncthreads();
    for (int i = 0; i < kTile; ++i) {
      const int position = tile * kTile + i;
      const int limit = bug == Bug::kOffByOne ? row + 1 : row;
      if (position <= limit) sum += stages[tile % kStages * kTile + i];
    }
    if (bug != Bug::kMissingReuseBarrier) __syncthreads();
  }
  WaitCopies<0>();
  const int end = bug == Bug::kUnwrittenOutput  ? p.length / kTile * kTile
                  : bug == Bug::kWriteBeyondEnd ? p.length + 1
                                                : p.length;
  if (row < end) p.out[row] = sum;
}

constexpr int kLength = 150;

std::vector<std::string> Faults(void (*kernel)(PrefixSums)) {
  std::vector<float> values(kLength), expected(kLength);
  float sum = 0;
  for (int i = 0; i < kLength; ++i) {
    values[i] = static_cast<float>(i % 7) + 0.125f * static_cast<float>(i);
    expected[i] = sum += values[i];
  }
  const std::vector<int> table = {5, 0, 3, 6, 1};
  return FaultsUnderSchedules(
      [&](EmulatedStream& stream, DeviceMemory& memory) {
        const int page_count = 8;
        auto* pages = reinterpret_cast<float*>(memory.Allocate(page_count * kTile * 4));
        for (int i = 0; i < kLength; ++i) pages[table[i / kTile] * kTile + i % kTile] = values[i];
        auto* out = reinterpret_cast<float*>(memory.Allocate(kLength * 4));
        const LaunchShape shape = {.blocks = {(kLength + kRows - 1) / kRows}, .threads = {kRows}};
        Launch(kernel, shape, &stream, {out, pages, Upload(memory, table), kLength});
        return std::vector<float>(out, out + kLength);
      },
      expected);
}

TEST_CASE("the right kernel gives the same bits under every schedule") {
  CHECK(Faults(&PrefixSumsKernel<Bug::kNone>) == std::vector<std::string>{});
}

TEST_CASE("a bug of each class shows under some schedule") {
  CHECK(Faults(&PrefixSumsKernel<Bug::kMissingWait>).size() >= 1);
  CHECK(Faults(&PrefixSumsKernel<Bug::kMissingBarrier>).size() >= 1);
  CHECK(Faults(&PrefixSumsKernel<Bug::kMissingReuseBarrier>).size() >= 1);
  CHECK(Faults(&PrefixSumsKernel<Bug::kOffByOne>).size() >= 1);
  CHECK(Faults(&PrefixSumsKernel<Bug::kStaleBlock>).size() >= 1);
  CHECK(Faults(&PrefixSumsKernel<Bug::kUnwrittenOutput>).size() >= 1);
  const std::vector<std::string> beyond = Faults(&PrefixSumsKernel<Bug::kWriteBeyondEnd>);
  REQUIRE(beyond.size() >= 1);
  CHECK_THAT(beyond[0], Catch::Contains("byte 600 of allocation 1, of 600 bytes, was written"));
}

}  // namespace
}  // namespace tessera::kernels::cuda::emulated

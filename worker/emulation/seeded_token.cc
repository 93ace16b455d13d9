#include "worker/emulation/seeded_token.h"

#include <algorithm>

#include "kernels/ops.h"

namespace tessera::worker {
namespace {

// The finaliser of MurmurHash3, which spreads every bit.
uint64_t Mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

bool IsAllowed(const SampleRequest& request, int32_t id) {
  if (!request.mask.empty()) {
    const auto word = static_cast<size_t>(id) / 32;
    if (word >= request.mask.size()) return false;
    if ((static_cast<uint32_t>(request.mask[word]) >> (id % 32) & 1) == 0) return false;
  }
  return std::find(request.banned.begin(), request.banned.end(), id) == request.banned.end();
}

}  // namespace

int32_t SeededToken(const SampleRequest& request, int64_t vocabulary) {
  const uint64_t seed = request.params == nullptr ? 0 : request.params->seed();
  const uint64_t drawn = Mix(seed ^ Mix(static_cast<uint64_t>(request.position) ^
                                        Mix(static_cast<uint64_t>(request.choice) + 1)));
  const auto first = static_cast<int64_t>(drawn % static_cast<uint64_t>(vocabulary));
  // The next one that is allowed, round the vocabulary.
  for (int64_t i = 0; i < vocabulary; ++i) {
    const auto id = static_cast<int32_t>((first + i) % vocabulary);
    if (IsAllowed(request, id)) return id;
  }
  return kernels::kNothingToPick;
}

}  // namespace tessera::worker

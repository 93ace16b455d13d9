// Random plans of replicas and requests to them, by seed: the same with every standard library.
// Thread rule: thread-safe.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/isa.h"
#include "proto/worker.pb.h"
#include "tests/worker/formation/made_checkpoint.h"
#include "tests/worker/formation/replica_harness.h"

namespace tessera::worker {

// How many plans a test tries: TESSERA_RANDOM_PLANS, or 12.
int RandomPlanCount();

// Numbers of one seed.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : random_(seed) {}
  int From(int low, int high) {  // both included
    return low + static_cast<int>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  kernels::Isa OneIsa();  // of those that this machine has

 private:
  std::mt19937_64 random_;
};

// 1 to 4 stages of unequal layers, each 1 to max_width ranks wide, of a made checkpoint.
std::vector<StageLayout> RandomStages(int max_width, Numbers* numbers);
// Kernels for each member of `options.stages`.
std::vector<kernels::Isa> RandomIsas(const ReplicaOptions& options, Numbers* numbers);
// Four greedy requests of 1 to 50 tokens, with logprobs; the last also with those of its prompt.
std::vector<v1::Submit> RandomRequests(Numbers* numbers);

// "5x1 2x3 avx512 reference, rows 37".
std::string Describe(const ReplicaOptions& options);

}  // namespace tessera::worker

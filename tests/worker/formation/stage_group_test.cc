// Which ranks may sum on their devices. (How they agree: replica_gpu_test.)
#include "worker/formation/stage_group.h"

#include <catch2/catch.hpp>

namespace tessera::worker {
namespace {

TEST_CASE("ranks sum on their devices if each has one of its own and the same library") {
  const RankDevice first = {"GPU-a", "NCCL 2.28.9"}, second = {"GPU-b", "NCCL 2.28.9"};
  CHECK(WhyThroughHost({first, second}) == "");
  CHECK(WhyThroughHost({first, second, {}}) == "rank 2 has no NCCL");
  CHECK(WhyThroughHost({{}, second}) == "rank 0 has no NCCL");
  CHECK(WhyThroughHost({first, second, first}) == "ranks 0 and 2 are on one GPU, GPU-a");
  CHECK(WhyThroughHost({first, {"GPU-b", "NCCL 2.27.3"}}) ==
        "rank 0 has NCCL 2.28.9, rank 1 NCCL 2.27.3");
}

TEST_CASE("ranks of one machine map memory for sums if their devices are of one kind, one each") {
  const RankDevice first = {"GPU-a", "", "cuda 1"}, second = {"GPU-b", "NCCL 2.28.9", "cuda 1"};
  const RankDevice own = {"", "", "cuda 1"};  // of its process alone
  CHECK(WhyNotMapped({first, second}) == "");
  CHECK(WhyNotMapped({own, own, first}) == "");
  CHECK(WhyNotMapped({first, {}}) == "rank 1's device maps none");
  CHECK(WhyNotMapped({first, second, first}) == "rank 0 and rank 2 are on one GPU, GPU-a");
  CHECK(WhyNotMapped({first, {"GPU-b", "", "cuda 2"}}) ==
        "rank 0's way is cuda 1, rank 1's cuda 2");
}

}  // namespace
}  // namespace tessera::worker

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

}  // namespace
}  // namespace tessera::worker

// The build of CUDA code, in each of its three cases: a toolkit and a GPU, a toolkit alone,
// neither.

#include <catch2/catch.hpp>
#include <vector>

#include "tests/catch_skip.h"

#ifdef TESSERA_WITH_CUDA
#include "tests/third_party/cuda/add_one.h"
#endif

namespace tessera::tests {
namespace {

TEST_CASE("a cuda_library runs on the GPU") {
#ifdef TESSERA_WITH_CUDA
  // Linking and calling it shows that a binary with CUDA code starts where there is no driver.
  if (!HasCudaDevice()) TESSERA_SKIP("no CUDA device; the kernel was compiled and linked");
  std::vector<float> values(1000, 1.5f);
  REQUIRE(AddOne(values.data(), 1000) == 0);
  CHECK(values == std::vector<float>(1000, 2.5f));
#else
  TESSERA_SKIP("no CUDA toolkit: built without it");
#endif
}

}  // namespace
}  // namespace tessera::tests

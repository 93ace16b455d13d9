// What a test for GPUs is without a CUDA toolkit.
#include <catch2/catch.hpp>

#include "tests/catch_skip.h"

namespace tessera::tests {
namespace {

TEST_CASE("kernels on a GPU") { TESSERA_SKIP("no CUDA toolkit: built without it"); }

}  // namespace
}  // namespace tessera::tests

#include "tests/bench/onednn_linear.h"

#include <catch2/catch.hpp>
#include <cstdlib>

namespace tessera::bench {

TEST_CASE("where oneDNN multiplies no bf16, its f32 stands in") {
  // As on a processor without AVX-512; read when oneDNN is first used.
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  const kernels::LinearSpec layer[] = {{.in_features = 64, .out_features = 128}};
  OneDnnLinears linears(kernels::DType::kBF16, layer, 2, 1);
  CHECK(linears.dtype() == kernels::DType::kF32);
  for (const int64_t rows : {1, 16}) {
    linears.SetRows(rows);
    linears.Run();
    CHECK_FALSE(linears.name().empty());
  }
}

}  // namespace tessera::bench

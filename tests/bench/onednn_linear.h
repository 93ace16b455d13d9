// A chain of oneDNN matmuls to compare with: weights packed once in the layout the library asks
// for. oneDNN multiplies bf16 only on processors with AVX-512; elsewhere its f32 stands in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "kernels/ops.h"

namespace tessera::bench {

class OneDnnLinears {
 public:
  // `matrices` weights with the shapes of `layer` over and over, f32 or bf16 (activations alike);
  // bf16 becomes f32 where oneDNN lacks it.
  OneDnnLinears(kernels::DType dtype, absl::Span<const kernels::LinearSpec> layer, int64_t matrices,
                int threads);
  ~OneDnnLinears();

  void SetRows(int64_t rows);
  void Run();
  kernels::DType dtype() const;     // of weights and activations
  const std::string& name() const;  // which implementation the library chose

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::bench

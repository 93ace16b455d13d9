// A chain of oneDNN matmuls to compare with: weights packed once in the layout the library asks
// for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "kernels/ops.h"

namespace tessera::bench {

class OneDnnLinears {
 public:
  // `matrices` weights with the shapes of `layer` over and over, f32 or bf16 (activations alike).
  OneDnnLinears(kernels::DType dtype, absl::Span<const kernels::LinearSpec> layer, int64_t matrices,
                int threads);
  ~OneDnnLinears();

  void SetRows(int64_t rows);
  void Run();
  const std::string& name() const;  // which implementation the library chose

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::bench

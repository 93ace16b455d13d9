// cuBLASLt as a test describes it: a table whose products are loops over memory that the host
// reads, which the emulated GPU's is. Matrices that begin at no multiple of what a product's
// preference said, or of 256 bytes, are refused.
//
// Thread rule: one at a time, for the process; its functions from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "kernels/cuda/driver/blas_table.h"

namespace tessera::tests {

struct FakeBlas {
  kernels::cuda::BlasStatus create_error = 0;
  kernels::cuda::BlasStatus multiply_error = 0;
  bool suggests = true;      // an algorithm for every product
  int most_suggestions = 1;  // at once
  // Called with the place of a product's algorithm among its suggestions; may be empty.
  std::function<void(int)> on_product = nullptr;
  int64_t workspace_bytes = 1000;  // that its algorithms want, and get
  // What was called.
  std::atomic<int64_t> suggestions = 0, products = 0;
  std::atomic<int64_t> alive = 0;  // handles, descriptors, layouts and preferences
};

// `fake` is read and written as long as the table is used.
kernels::cuda::BlasTable TableOf(FakeBlas* fake);

}  // namespace tessera::tests

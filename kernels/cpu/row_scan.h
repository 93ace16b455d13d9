// Vector loops over a row of floats, for code that is itself compiled for every processor (the
// sampler, top-k, expert routing). One set per path. Pure functions; NaN is never largest, above or
// equal.
#pragma once

#include <cstdint>

namespace tessera::kernels {

struct RowScan {
  // -infinity where there is no number.
  float (*max)(const float* values, int64_t count);
  // False where any value is NaN or infinite.
  bool (*finite)(const float* values, int64_t count);
  // Index of the first value equal to `value`, or `count`.
  int64_t (*find)(const float* values, int64_t count, float value);
  // Sum of exp((value - shift) * factor).
  double (*sum_exp)(const float* values, int64_t count, float shift, float factor);
  // Indices of values >= least, ascending, into `indices` (room for `count`); returns how many.
  int64_t (*collect)(const float* values, int64_t count, float least, int32_t* indices);
  // The k largest, descending, ties by index, into values/indices of k; k <= count.
  void (*top_k)(const float* values, int64_t count, int64_t k, float* largest, int32_t* indices);
};

}  // namespace tessera::kernels

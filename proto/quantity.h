// Quantities as people write them: a number and a unit.
//
//   bytes             "80 GiB", "512 MB"                   KiB..TiB are powers of 1024, kB..TB of
//   1000 bytes per second  "25 GB/s", "40 Gbit/s"               1 Gbit/s = 1e9 bits per second FLOP
//   per second   "155 TFLOPS", "155 TFLOP/s" seconds           "0.2 ms", "10 us", "2 s", "5 min",
//   "1 h" USD per hour      "1.99 USD/h" ratio             "90 %"
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera {

enum class Dimension { kBytes, kBytesPerSecond, kFlopsPerSecond, kSeconds, kUsdPerHour, kRatio };

// In the base unit of the dimension. InvalidArgument with the reason and an example; for negative
// values and those above Highest too.
absl::StatusOr<double> ParseQuantity(std::string_view text, Dimension dimension);

// In the base unit: far above what there is, and far below where sums and products overflow.
double Highest(Dimension dimension);

// For messages: "80 GiB".
std::string_view Example(Dimension dimension);

}  // namespace tessera

// Logarithms of decay rates that a file holds as -exp of them, as GGUF does.
#pragma once

#include <memory>

#include "worker/weights/row_source.h"

namespace tessera::worker {

// The numbers log(-x) of a column of plain elements, as f32. Reading fails where one is no finite
// number below 0.
std::shared_ptr<const RowSource> LogOfRates(std::shared_ptr<const RowSource> source);

}  // namespace tessera::worker

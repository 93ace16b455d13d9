// What each worker holds, as plain ranges, computed once here and only read elsewhere (weights,
// kv_layout). Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/model.pb.h"
#include "proto/plan.pb.h"

namespace tessera::scheduler {

// The shares of a stage of `width` ranks that holds layers [first_layer, end_layer), in rank order.
// Everything is split as evenly as it goes, earlier ranks take the rest; key groups of delta nets
// are split whole; kv heads are split with
// the query heads that read them, and replicated where ranks outnumber them; experts are split
// whole, and ffn columns of int8 and int4 weights between groups that share a scale, so that scales
// do not depend on the width. `weight_dtype` UNSPECIFIED: as the model is stored. Requires 1 <=
// width <= MaxWidth (scheduler/cost/model_shape.h): no rank is left without a part.
std::vector<v1::WorkerShare> StageShares(const v1::Model& model, int64_t first_layer,
                                         int64_t end_layer, int width, v1::DataType weight_dtype);

// The same cut unevenly, a rank for each fraction, which are positive: kv heads with their query
// heads, key groups, units of ffn columns, experts and vocabulary rows by largest remainder
// (apportion.h), each kind of part by itself. Where ranks outnumber kv heads, heads are split
// evenly, as above.
std::vector<v1::WorkerShare> UnevenStageShares(const v1::Model& model, int64_t first_layer,
                                               int64_t end_layer, std::span<const double> fractions,
                                               v1::DataType weight_dtype);

}  // namespace tessera::scheduler

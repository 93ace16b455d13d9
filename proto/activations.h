// What planner and workers must take alike of activations and quantised weights.
#pragma once

#include <cstdint>

namespace tessera {

// An element of the residual stream in a worker's buffers: f32, whatever type weights and KV have.
// CPU workers send it as it is, so that a pipeline's bits are one worker's.
inline constexpr int64_t kActivationElementBytes = 4;

// Inputs of a matrix that share an int8 scale, where a ConfigureRequest names no other number.
inline constexpr int64_t kInt8GroupInputs = 128;

}  // namespace tessera

// What planner and workers must take alike of activations and quantised weights.
#pragma once

#include <cstdint>

namespace tessera {

// An element of the residual stream in a worker's buffers: f32, whatever type weights and KV have.
inline constexpr int64_t kActivationElementBytes = 4;

// The same between CPU workers: rows for the next stage, sums and gathers of ranks. They send their
// buffers as they are, so that a pipeline's bits are one worker's.
inline constexpr int64_t kWireElementBytes = kActivationElementBytes;

// Inputs of a matrix that share an int8 scale, where a ConfigureRequest names no other number.
inline constexpr int64_t kInt8GroupInputs = 128;

}  // namespace tessera

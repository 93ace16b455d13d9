// What planner and workers must take alike of activations and quantised weights.
#pragma once

#include <cstdint>
#include <numeric>

namespace tessera {

// An element of the residual stream in a worker's buffers: f32, whatever type weights and KV have.
inline constexpr int64_t kActivationElementBytes = 4;

// The same between CPU workers: rows for the next stage, sums and gathers of ranks. They send their
// buffers as they are, so that a pipeline's bits are one worker's.
inline constexpr int64_t kWireElementBytes = kActivationElementBytes;

// Inputs of a matrix that share an int8 scale, where a ConfigureRequest names no other number.
inline constexpr int64_t kInt8GroupInputs = 128;

// Inputs of an int4 matrix that share a scale as workers hold it, of a checkpoint whose groups have
// so many (0: all). Groups are cut so that ranks' columns may begin between any two.
constexpr int64_t Int4GroupInputs(int64_t stored) {
  return stored > 0 ? std::gcd(stored, kInt8GroupInputs) : kInt8GroupInputs;
}
// Bytes of an int4 weight, with its part of scale and zero.
constexpr double Int4ElementBytes(int64_t group_inputs) {
  return 0.5 + 4.0 / static_cast<double>(group_inputs);
}

}  // namespace tessera

// What the CUDA macro's test compiles: the smallest kernel, behind a plain C++ function.
#pragma once

namespace tessera::tests {

// Whether a CUDA device can be used at this moment.
bool HasCudaDevice();

// Adds one to each of `count` host floats on device 0. Returns the CUDA error code, 0 for success.
int AddOne(float* values, int count);

}  // namespace tessera::tests

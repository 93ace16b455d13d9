// Loads and stores of memory that other devices and the host use at the same time (of "system
// scope"), and what a thread needs that waits for another device. On a GPU each is a PTX
// instruction (ptx_system_ops.h), under the emulator an atomic access (emulation/system_memory.h).
// For .cu files.
//
//   uint64_t LoadAcquireSystem(const uint64_t* from);
//   void StoreReleaseSystem(uint64_t* to, uint64_t value);
//     Of a flag: who loads a value that was stored so sees all that its storer did before, or saw
//     behind a barrier of its block.
//   T LoadSystem(const T* from); void StoreSystem(T* to, T value);
//     T is uint32_t or float4, of stores also uint64_t. Never torn within an element, in no order
//     with others.
//   uint64_t SystemNanoseconds();
//     Of one clock for all threads of a device; may stand still for a microsecond.
//   void LetOtherDevicesRun();
//     In each round of a loop that waits for another device. Under the emulator the other threads
//     of the block stand still meanwhile: what a block publishes it publishes before it waits.
#pragma once

#include "kernels/cuda/platform.h"

#ifdef TESSERA_CUDA_EMULATED
#include "kernels/cuda/emulation/system_memory.h"
#else
#include "kernels/cuda/ptx_system_ops.h"
#endif

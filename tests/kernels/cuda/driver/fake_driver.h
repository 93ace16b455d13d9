// A driver and an NVML that a test describes: tables whose functions answer from a FakeMachine.
//
// Thread rule: one machine at a time, for the process; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/driver/driver_tables.h"

namespace tessera::tests {

struct FakeGpu {
  std::string name = "NVIDIA RTX A6000";
  unsigned char uuid_byte = 0x11;  // all of its UUID
  int capability = 86;
  int64_t memory_bytes = int64_t{48} << 30;
  int64_t free_bytes = int64_t{47} << 30;
  int compute_mode = 0;
  kernels::cuda::CuResult take_error = 0;  // of taking its context
  std::vector<unsigned> processes = {};    // that NVML names
};

struct FakeSlice {
  std::string name, uuid;
  int64_t memory_bytes = int64_t{20} << 30;
};

struct FakeMachine {
  bool has_driver = true, has_nvml = true;
  int cuda_version = 13000;
  std::string driver_version = "580.65.06";
  kernels::cuda::CuResult init_error = 0;
  std::vector<FakeGpu> gpus = {};      // that the driver shows
  unsigned machine_gpus = 0;           // that NVML counts; 0: as many
  std::vector<FakeSlice> slices = {};  // MIG slices of the first that NVML counts
  int taken = 0;                       // contexts that are held
};

// The machine is read, and its `taken` written, as long as the tables are used.
kernels::cuda::DriverTables TablesOf(FakeMachine* machine);

}  // namespace tessera::tests

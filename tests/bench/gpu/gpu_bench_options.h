// What gpu_bench is asked for: its flags. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::bench {

inline constexpr std::string_view kEmulated = "cuda-emulated";

struct GpuBenchOptions {
  std::string device = "cuda:0";
  std::string other_device;  // of the second rank; empty: the same
  std::string shape;         // empty: 8b, tiny on the emulator
  std::string folder;        // of the model; empty: a new one in memory
  std::string programs;      // of the daemon; empty: beside this one
  std::string tokenizer = "deploy/demo_model/tessera-demo";
  std::vector<std::string> only;
  int32_t batch = 0;  // of the step; 0: those of the sizes
  int32_t steps = 0;  // 0: that of the sizes
  std::string json;
  std::string tuning_folder;  // as a worker's
  bool measure_only = false;
};

// N of "cuda:N"; -1: it is another name.
int GpuIndex(const std::string& device);

// InvalidArgument naming the flag. `printed`: only the help was asked for.
absl::StatusOr<GpuBenchOptions> ParseGpuBenchOptions(int argc, char** argv, bool* printed);

}  // namespace tessera::bench

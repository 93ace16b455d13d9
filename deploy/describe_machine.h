// `tessera plan init`: what this machine has, as a cluster description to start from.
//
// Thread rule: ReadMachineFacts reads files, runs nvidia-smi where there is one and times the
// reading of memory (a fifth of a second); DescribeMachine is a pure function. Units: bytes, bytes
// per second.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::deploy {

struct GpuFacts {
  std::string model;         // as the driver calls it: "NVIDIA RTX A6000"
  int64_t memory_bytes = 0;  // 0: unknown
  bool operator==(const GpuFacts&) const = default;
};

struct MachineFacts {
  std::string host_name;  // which workers are named after; empty: unknown
  std::string cpu_model;
  int cores = 0;                     // that this process may use
  int64_t memory_bytes = 0;          // that it may still take, under its control group
  double gigahertz = 0;              // 0: unknown
  int fp32_per_cycle = 16;           // of a core: lanes times two for a fused multiply-add
  double read_bytes_per_second = 0;  // measured over all cores; 0: not
  std::vector<GpuFacts> gpus;
};

// `root` is "" but in tests, which plant a tree; then neither nvidia-smi is run nor memory timed.
MachineFacts ReadMachineFacts(const std::string& root);

// cluster.yaml with comments. GPUs that the catalogue knows are named by it, others are listed as
// kinds of their own with what is missing; without GPUs the CPU is the device.
std::string DescribeMachine(const MachineFacts& facts);

// The catalogue's name for what a driver reports; empty: unknown.
std::string KindOfGpu(const GpuFacts& gpu);

}  // namespace tessera::deploy

// `tessera plan init`: what this machine has, as a cluster description to start from; and what
// `tessera up` starts, as one to plan for.
//
// Thread rule: ReadMachineFacts reads files and, where there are no GPUs, times the reading of
// memory (a fifth of a second); DescribeMachine is a pure function. Units: bytes, bytes per second.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/device_choice.h"
#include "proto/coordinator.pb.h"

namespace tessera::deploy {

struct GpuFacts {
  std::string kind;          // the catalogue's name, or `model` where it has none
  std::string model;         // as the driver calls it: "NVIDIA RTX A6000"
  int64_t memory_bytes = 0;  // 0: unknown
  // Measured, as a worker computes; 0: not.
  double read_bytes_per_second = 0;
  double half_flops_per_second = 0;  // of linear ops in 16 bits
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

// Whether there are GPUs that the catalogue does not know, so that only measuring tells their
// rates.
bool HasUnknownGpu(const v1::DeviceList& devices);

// `devices`: what the worker's program says of the GPUs (device_choice). `root` is "" but in tests,
// which plant a tree; then memory is not timed.
MachineFacts ReadMachineFacts(const std::string& root, const v1::DeviceList& devices);

// cluster.yaml with comments. GPUs that the catalogue knows are named by it, others are listed as
// kinds of their own with what is missing; without GPUs the CPU is the device.
std::string DescribeMachine(const MachineFacts& facts);

// The machine "local" with the devices of workers local/0, local/1, ... in that order. What is not
// known of them is an estimate, in whose place the coordinator takes what the workers measure.
std::string DescribeStarted(const MachineFacts& facts, const std::vector<DeviceChoice>& devices);

}  // namespace tessera::deploy

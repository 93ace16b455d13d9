// Models and devices that the tests of the planner share; figures of the published configs and
// vendor sheets.
#pragma once

#include <string>

#include "scheduler/cost/hardware.h"
#include "scheduler/cost/model_shape.h"

namespace tessera::tests {

inline scheduler::ModelShape DenseShape(const std::string& name, int layers, int hidden, int heads,
                                        int kv_heads, int ffn, int vocabulary = 32000) {
  scheduler::ModelShape shape;
  shape.name = name;
  shape.layers = layers;
  shape.hidden = hidden;
  shape.kinds = {{.hidden = hidden,
                  .heads = heads,
                  .kv_heads = kv_heads,
                  .head_dim = hidden / heads,
                  .ffn_width = ffn}};
  shape.vocabulary = vocabulary;
  shape.embedding_width = hidden;
  return shape;
}

inline scheduler::ModelShape Llama2_70B() {
  return DenseShape("Llama-2-70B", 80, 8192, 64, 8, 28672);
}
inline scheduler::ModelShape Llama3_8B() {
  return DenseShape("Llama-3-8B", 32, 4096, 32, 8, 14336, 128256);
}
inline scheduler::ModelShape Llama30B() { return DenseShape("LLaMA-30B", 60, 6656, 52, 52, 17920); }

inline scheduler::ModelShape Mixtral() {
  scheduler::ModelShape shape = DenseShape("Mixtral-8x7B", 32, 4096, 32, 8, 14336);
  shape.kinds[0].ffn_width = 0;
  shape.kinds[0].experts = 8;
  shape.kinds[0].experts_per_token = 2;
  shape.kinds[0].expert_width = 14336;
  return shape;
}

inline scheduler::DeviceSpec Device(const std::string& kind, double gib, double tflops,
                                    double gigabytes_per_second) {
  scheduler::DeviceSpec device;
  device.kind = kind;
  device.memory_bytes = gib * 1073741824.0;
  device.flops_per_second = tflops * 1e12;
  device.memory_bytes_per_second = gigabytes_per_second * 1e9;
  return device;
}

inline scheduler::DeviceSpec A6000() { return Device("A6000", 48, 155, 768); }
inline scheduler::DeviceSpec A5000() { return Device("A5000", 24, 111, 768); }
inline scheduler::DeviceSpec A4000() { return Device("A4000", 16, 77, 448); }

}  // namespace tessera::tests

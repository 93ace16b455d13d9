// Runs tiny checkpoints step by step, without an engine, and reads what they should give.
//
// One thread. The rows of a step, its block tables and positions are laid out here as plainly as
// possible: an implementation of its own of what worker/step/step_inputs does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/device.h"
#include "worker/model/model.h"
#include "worker/weights/safetensors.h"

namespace tessera::worker {

// Folders below tests/golden/models.
std::vector<std::string> GoldenModels();
// "NAME.gguf" of these that hold the same weights as a GGUF file too.
std::vector<std::string> GoldenGgufCopies();
// What a model is loaded from: the folder, or the GGUF file in it where that is asked for, or all
// that it has.
std::filesystem::path GoldenFolder(const std::string& name);

// expected.safetensors: see make.py.
struct GoldenRun {
  std::vector<int32_t> prompt;
  std::vector<int32_t> tokens;                    // appended greedily
  std::vector<int32_t> long_tokens;               // these, and as many more as float32 gives
  std::vector<std::vector<float>> prompt_logits;  // of each prompt position
  std::vector<std::vector<float>> step_logits;    // behind each of `tokens`
};
std::vector<GoldenRun> ReadGolden(const std::string& name);

// The elements of a tensor of F32 or F16.
std::vector<float> FloatsOf(const SafetensorsFile& file, const SafetensorsEntry& entry);

// Everything that the model has.
v1::WorkerShare WholeShare(const v1::Model& model);

struct TinyOptions {
  kernels::Isa isa = kernels::Isa::kReference;
  // Instead of a CPU the CUDA device under test (tests/kernels/device_under_test.h), emulated or
  // a GPU; not in a build for TSan.
  bool cuda = false;
  kernels::DType weight_dtype = kernels::DType::kF32;
  kernels::DType kv_dtype = kernels::DType::kF32;
  kernels::DType product_dtype = kernels::DType::kF32;
  int64_t block_tokens = 8;
  int64_t max_logit_rows = 128;
  int64_t context_tokens = 128;  // positions of a sequence
  bool pack_later = false;
};

// Some rows of one sequence.
struct Chunk {
  int sequence = 0;  // 0..kSequences-1; each has blocks of its own
  std::vector<int32_t> tokens;
  int64_t first_position = 0;
  int64_t prompt_tokens = 0;  // of the sequence: dynamic rotation depends on it
};

class TinyModel {
 public:
  static constexpr int kSequences = 4;
  static constexpr int64_t kMaxTokens = 128;  // rows of a step

  // Fails the test where loading fails, and, on the emulated device, where a step writes outside
  // what was allocated.
  TinyModel(const std::filesystem::path& folder, const TinyOptions& options);

  // One step; logits of all rows, in order. `padding` rows stand behind them.
  std::vector<std::vector<float>> Run(const std::vector<Chunk>& chunks, int64_t padding = 0);
  // The same, with logits of `wanted` rows alone, in that order.
  std::vector<std::vector<float>> RunFor(const std::vector<int32_t>& wanted,
                                         const std::vector<Chunk>& chunks, int64_t padding = 0);

  const Model& model() const { return *model_; }
  Model& model() { return *model_; }

 private:
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<kernels::Stream> stream_;
  std::unique_ptr<Model> model_;
  kernels::Buffer kv_memory_;
  kernels::Buffer inputs_;
  int64_t block_tokens_, table_width_;
  absl::Status (*check_memory_)() = nullptr;
};

// Largest |a - b| of two rows of logits, over the largest |b|.
double RelativeError(const std::vector<float>& a, const std::vector<float>& b);
int32_t Best(const std::vector<float>& logits);

}  // namespace tessera::worker

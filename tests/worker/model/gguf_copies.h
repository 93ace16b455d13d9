// A golden checkpoint written as GGUF, name by name and number by number, as llama.cpp's converter
// does it (conversion/ there): for families whose file would cost more than the code that makes it.
//
// One thread. Fails the test where a checkpoint has what is not known here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model/model_tensors.h"
#include "tests/temporary_folder.h"

namespace tessera::worker {

// A tensor of floats.
struct Numbers {
  std::vector<int64_t> shape;
  std::vector<float> values;

  int64_t Size() const { return static_cast<int64_t>(values.size()); }
};
using Tensors = std::map<std::string, Numbers>;

// The values of a golden checkpoint of F32 or F16.
Tensors ReadTensors(const std::string& name);
nlohmann::json ReadConfig(const std::string& name);

// Rows [begin, end) of the first dimension; and more of them behind those that are there.
Numbers RowsOf(const Numbers& all, int64_t begin, int64_t end);
void Append(const Numbers& more, Numbers* all);
// A matrix whose rows are the columns of another.
Numbers Turned(const Numbers& matrix);

// Keys of GGUF: one real number; and sizes that most families have.
std::string RealKey(const std::string& name, double value);
std::vector<std::string> CommonKeys(const std::string& arch, const nlohmann::json& config);

// Puts a tensor of a layer, whose name in the checkpoint is `name` without ".weight", under its
// name in GGUF, which begins with `block`.
using Transform = std::function<void(const std::string& name, const std::string& block,
                                     Numbers tensor, Tensors* out)>;
// The setting of most families.
void PutUnderGgufName(const std::string& name, const std::string& block, Numbers tensor,
                      Tensors* out);

// All tensors below `root`, and the head; experts in one; `added` to the final norm.
Tensors InGguf(const Tensors& checkpoint, const Transform& transform, float added = 0,
               const std::string& root = "model.");

// config.json and model.safetensors of F32, below `place` of the folder.
void WriteCheckpoint(const tests::TemporaryFolder& folder, const std::string& place,
                     const nlohmann::json& config, const Tensors& tensors);

// Two copies of what a golden checkpoint has, perhaps with another config.json and fewer tensors: a
// folder of F32, and a GGUF file of F32.
class Copies {
 public:
  Copies(const std::string& golden, const nlohmann::json& config, const Tensors& tensors);

  void WriteGguf(const std::vector<std::string>& keys, const Tensors& tensors) const;
  // Their models are the same, but that rows of q and k may be neighbouring pairs in one of them
  // alone (`paired`: in the file, or not), and so are the logits of the golden prompts, on all
  // paths of the CPU.
  void Check(std::optional<bool> paired = {}) const;
  // What whoever serves the file hears of it.
  absl::StatusOr<CheckedModel> ReadFile() const { return ReadCheckedModel(file().string()); }

 private:
  std::filesystem::path folder() const { return folder_.path() / "hf"; }
  std::filesystem::path file() const { return folder_.path() / "model.gguf"; }

  const std::string golden_;
  const tests::TemporaryFolder folder_;
};

}  // namespace tessera::worker

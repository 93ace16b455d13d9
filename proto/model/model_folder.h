// A model as it is published, a Hugging Face folder or a GGUF file: which one a name means, the
// model's shape, the sampling defaults it recommends, and a fingerprint by which two machines see
// that they have the same one.
//
// Reads small files only; tensors are read by worker/weights. Errors name file and key or
// tensor. Thread-safe; reads the environment variables that Hugging Face's own tools do
// (HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"

namespace tessera {

// The folder or the .gguf file itself, or the snapshot that the local Hugging Face cache has under
// that name ("organisation/model"). NotFound with the command that downloads it. What is called a
// folder below may be a GGUF file.
absl::StatusOr<std::filesystem::path> ResolveModelFolder(std::string_view name_or_path);

// The shape in config.json of the folder, or in the keys of the file, that `name_or_path` means.
// end-of-sequence ids are those of config.json and generation_config.json together; where
// config.json says nothing of quantisation, hf_quant_config.json does.
// InvalidArgument, naming file and key, for what is not understood. `notes` as in ParseModelConfig.
absl::StatusOr<v1::Model> ReadModelFolder(std::string_view name_or_path,
                                          std::vector<std::string>* notes = nullptr);

// What generation_config.json recommends where a request says nothing; empty: it has no opinion.
// suppress_tokens holds whatever a request says.
struct GenerationDefaults {
  std::optional<double> temperature;         // [0, 100]
  std::optional<double> top_p;               // (0, 1]
  std::optional<double> min_p;               // [0, 1]
  std::optional<int64_t> top_k;              // 0: off
  std::optional<double> repetition_penalty;  // (0, 100]
  std::vector<int32_t> suppress_tokens;      // ids that are never generated
};

// All empty where the folder has no generation_config.json, and of a GGUF file.
absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(const std::filesystem::path& folder);

// Hexadecimal SHA-256 of config.json and of every weight file's name (not of a GGUF file's), size,
// header (tensor names, shapes, dtypes, places; keys of GGUF) and bytes: all of a file up to 16
// MiB, else 32 pieces of 128 KiB spread over it. Equal on two machines that have the same
// checkpoint, other for another training run of the same shape, cheap for one of any size. A few
// changed bytes of a large file may go unseen.
absl::StatusOr<std::string> Fingerprint(const std::filesystem::path& model);

}  // namespace tessera

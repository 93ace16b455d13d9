// What a folder holds that is no model, or not all of one, in words for whoever gave it. Reads
// names of files and small ones. Thread-safe.
#pragma once

#include <filesystem>

#include "absl/status/status.h"

namespace tessera {

// An error (not found) for a folder without config.json: an adapter, GGUF files, a pipeline of
// another kind, a checkpoint in its publisher's own form, or nothing of use; with what to give in
// its place.
absl::Status NoModelIn(const std::filesystem::path& folder);

// An error (not found) where the folder of a model, or its GGUF file, has no tokenizer of a form
// that is read.
absl::Status CheckTokenizerFiles(const std::filesystem::path& model);

}  // namespace tessera

// A model whose GGUF is in several files, NAME-00001-of-00003.gguf and so on: the first one has all
// keys, each has tensors and their places in it.
//
// Format: split.no (from 0), split.count and split.tensors.count (of all files) in each file
// (tools/gguf-split of llama.cpp). Thread-safe; errors name file and key.
#pragma once

#include <filesystem>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model/gguf_header.h"

namespace tessera {

struct GgufParts {
  std::vector<std::filesystem::path> files;
  GgufHeader whole;  // the first file's keys, the tensors of all
};

// The files of the model that the name is a part of, whether they are there or not; the file alone
// where its name is none of a part.
std::vector<std::filesystem::path> GgufPartFiles(const std::filesystem::path& path);
std::filesystem::path FirstGgufPart(const std::filesystem::path& path);

// `path` is the first part, or a whole file. NotFound for a file that is not there; InvalidArgument
// for another part, and for parts that do not belong together.
absl::StatusOr<GgufParts> ReadGgufParts(const std::filesystem::path& path);

}  // namespace tessera

// The shape of the source tree, recomputed from its #include lines, and what breaks it.
//
// Pure functions over (path, text) pairs, so that the checks themselves are tested with planted
// faults; ReadSources is the only one that touches the disk. Thread-safe.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tests {

struct SourceFile {
  std::string path;  // from the repository root, with '/'
  std::string text;
};

// Where `path` belongs: its first folder ("worker"), or "" for a file at the root.
std::string_view FolderOf(std::string_view path);

// What stands between the quotes or angle brackets of each #include line.
std::vector<std::string> IncludesOf(std::string_view text);

// One line of English for each include that the architecture does not allow: a folder edge, a path
// that does not start at the root, headers of a library that only its wrapper may see.
std::vector<std::string> FindForbiddenIncludes(const std::vector<SourceFile>& files);

// One line for each cycle of files that include each other: "a.h -> b.h -> a.h".
std::vector<std::string> FindIncludeCycles(const std::vector<SourceFile>& files);

// The same for the folders that they lie in, at any depth.
std::vector<std::string> FindFolderCycles(const std::vector<SourceFile>& files);

// One line for each file of more than `max_lines` lines (BUILD.bazel aside), each folder with a
// name that says nothing (common, utils, ...), each top-level folder that the architecture does not
// know.
std::vector<std::string> FindShapeFaults(const std::vector<SourceFile>& files,
                                         std::size_t max_lines);

// One line for each folder of `prefix` and below with more than `max_units` units on one level. A
// unit is what shares a name: x.h, x.cc.
std::vector<std::string> FindFullFolders(const std::vector<SourceFile>& files,
                                         std::string_view prefix, std::size_t max_units);

// One line for each field of a .proto file below proto/ that has no comment, on its line or just
// above.
std::vector<std::string> FindFieldsWithoutComment(const std::vector<SourceFile>& files);

// All C++, CUDA, proto, Starlark, Python and shell files below `root`, sorted by path; without
// generated folders (bazel-*, dotted ones).
std::vector<SourceFile> ReadSources(const std::filesystem::path& root);

}  // namespace tessera::tests

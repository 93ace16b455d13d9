// Holds the tree to its architecture, and shows with planted faults that it would notice.

#include "tests/layering.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

namespace tessera::tests {
namespace {

constexpr std::size_t kMaxLines = 600;
// Of a folder on one level.
constexpr std::size_t kMaxUnits = 30, kMaxSchedulerUnits = 25;

// The checkout that this test was built from. Bazel's runfiles are links to it; the test is not
// sandboxed, so that it sees also files that no target names.
std::filesystem::path RepositoryRoot() {
  return std::filesystem::canonical("WORKSPACE").parent_path();
}

std::vector<SourceFile> Tree() { return ReadSources(RepositoryRoot()); }

SourceFile Including(std::string path, const std::string& include) {
  return {std::move(path), "#include \"" + include + "\"\n"};
}

using Faults = std::vector<std::string>;

TEST_CASE("the tree has only the edges that the architecture allows") {
  CHECK(FindForbiddenIncludes(Tree()) == Faults{});
}

TEST_CASE("no files of the tree include each other in a cycle") {
  CHECK(FindIncludeCycles(Tree()) == Faults{});
}

TEST_CASE("files are short and folders have names") {
  CHECK(FindShapeFaults(Tree(), kMaxLines) == Faults{});
}

TEST_CASE("the whole tree is read, and nothing but sources") {
  const std::vector<SourceFile> files = Tree();
  const auto has = [&](std::string_view path) {
    return std::any_of(files.begin(), files.end(),
                       [&](const SourceFile& file) { return file.path == path; });
  };
  CHECK(has("tests/layering.cc"));
  CHECK(has("third_party/spdlog/log.h"));
  CHECK(has("proto/BUILD.bazel"));
  CHECK_FALSE(has("LICENSE"));
}

TEST_CASE("include lines are found in every spelling") {
  const auto includes = IncludesOf(
      "#pragma once\n#include <a/b.h>\n  #  include \"c/d.h\"  // why\n// #include \"no.h\"\n"
      "#include\"e.h\"\nint include;\n#if 1\n#include MACRO\n");
  CHECK(includes == Faults{"a/b.h", "c/d.h", "e.h"});
}

TEST_CASE("a forbidden edge is named") {
  const auto faults = FindForbiddenIncludes({Including("kernels/x.cc", "worker/model/model.h")});
  REQUIRE(faults.size() == 1);
  CHECK(faults[0] == "kernels/x.cc includes \"worker/model/model.h\": kernels may not use worker");
}

TEST_CASE("every edge is judged as the architecture says") {
  const std::vector<std::string> folders = {"proto",  "scheduler",   "kernels", "kvcache",
                                            "worker", "coordinator", "deploy",  "tests"};
  // Rows: who includes; columns: what, in the same order.
  const std::vector<std::string> allowed = {"1.......", "11......", "..1.....", "..11....",
                                            "1.111...", "11...1..", "11....1.", "11111111"};
  for (std::size_t from = 0; from < folders.size(); ++from) {
    for (std::size_t to = 0; to < folders.size(); ++to) {
      INFO(folders[from] << " -> " << folders[to]);
      const auto faults =
          FindForbiddenIncludes({Including(folders[from] + "/sub/x.cc", folders[to] + "/y.h")});
      CHECK(faults.empty() == (allowed[from][to] == '1'));
    }
  }
}

TEST_CASE("of the scheduler a worker may use the batcher alone") {
  CHECK(FindForbiddenIncludes({Including("worker/engine/x.h", "scheduler/batcher.h")}).empty());
  CHECK(FindForbiddenIncludes({Including("worker/engine/x.h", "scheduler/router.h")}).size() == 1);
  CHECK(FindForbiddenIncludes({Including("worker/emulation/x.h", "scheduler/router.h")}).empty());
  CHECK(FindForbiddenIncludes({Including("kvcache/x.h", "scheduler/batcher.h")}).size() == 1);
}

TEST_CASE("wrappers are free to use, and use nobody") {
  CHECK(FindForbiddenIncludes({Including("kernels/x.h", "third_party/absl/str_cat.h")}).empty());
  CHECK(FindForbiddenIncludes({Including("third_party/a/x.h", "proto/ids.h")}).size() == 1);
}

TEST_CASE("libraries with expensive headers are seen by their wrappers alone") {
  const auto faults = FindForbiddenIncludes({{"deploy/x.cc", "#include <CLI/CLI.hpp>\n"},
                                             {"third_party/cli11/flags.cc", "#include <CLI/x.h>"}});
  REQUIRE(faults.size() == 1);
  CHECK(faults[0] ==
        "deploy/x.cc includes <CLI/CLI.hpp>, which costs seconds a file: only "
        "third_party/cli11/flags.cc may");
}

TEST_CASE("every field that processes or files say is explained") {
  CHECK(FindFieldsWithoutComment(Tree()) == Faults{});
  const std::string silent =
      "message M {\n  map<int32, float> a = 1;\n  repeated int32 b = 2;\n}\n";
  CHECK(FindFieldsWithoutComment({{"proto/x.proto", silent}}).size() == 2);
  const std::string told = "message M {\n  // what it is\n  int32 a = 1;\n  E e = 2;  // said\n}\n";
  CHECK(FindFieldsWithoutComment({{"proto/x.proto", told}}).empty());
}

TEST_CASE("paths start at the root") {
  CHECK(FindForbiddenIncludes({Including("worker/x.cc", "y.h"), {"worker/y.h", ""}}).size() == 1);
  CHECK(FindForbiddenIncludes({Including("worker/x.cc", "../kernels/y.h")}).size() == 1);
  CHECK(FindForbiddenIncludes({Including("worker/x.cc", "absl/status/status.h")}).empty());
}

TEST_CASE("no folder uses one that uses it") {
  CHECK(FindFolderCycles(Tree()) == Faults{});
  const auto faults =
      FindFolderCycles({Including("a/x.cc", "a/b/y.h"), Including("a/b/z.cc", "a/v.h")});
  CHECK(faults == Faults{"a -> a/b -> a"});
  CHECK(FindFolderCycles({Including("a/x.cc", "a/b/y.h"), Including("a/x.cc", "a/w.h")}).empty());
  const auto between =
      FindFolderCycles({Including("a/b/x.cc", "a/c/y.h"), Including("a/c/z.cc", "a/b/v.h")});
  CHECK(between == Faults{"a/b -> a/c -> a/b"});
}

TEST_CASE("folders have few units on one level") {
  CHECK(FindFullFolders(Tree(), "scheduler/", kMaxSchedulerUnits) == Faults{});
  for (const char* part :
       {"coordinator/", "deploy/", "kernels/", "kvcache/", "proto/layers/", "tls/", "worker/"}) {
    CHECK(FindFullFolders(Tree(), part, kMaxUnits) == Faults{});
  }
  const std::vector<SourceFile> files = {{"a/x.h", ""},   {"a/x.cc", ""},        {"a/y.h", ""},
                                         {"a/b/z.h", ""}, {"a/BUILD.bazel", ""}, {"c/v.h", ""}};
  CHECK(FindFullFolders(files, "a/", 2).empty());
  CHECK(FindFullFolders(files, "a/", 1) ==
        Faults{"a has 2 units on one level; more than 1 are two folders"});
}

TEST_CASE("a cycle is spelled out") {
  const auto faults = FindIncludeCycles(
      {Including("a/x.h", "a/y.h"), Including("a/y.h", "a/z.h"), Including("a/z.h", "a/x.h")});
  CHECK(faults == Faults{"a/x.h -> a/y.h -> a/z.h -> a/x.h"});
  CHECK(FindIncludeCycles({Including("a/x.h", "a/y.h"), {"a/y.h", ""}}).empty());
}

TEST_CASE("long files, empty names and foreign folders are found") {
  const std::string line = "x\n";
  std::string long_text;
  for (int i = 0; i < 3; ++i) long_text += line;
  CHECK(FindShapeFaults({{"worker/x.cc", long_text}}, 3).empty());
  CHECK(FindShapeFaults({{"worker/x.cc", long_text}}, 2).size() == 1);
  CHECK(FindShapeFaults({{"worker/BUILD.bazel", long_text}}, 2).empty());
  CHECK(FindShapeFaults({{"worker/utils/x.cc", ""}}, 2).size() == 1);
  CHECK(FindShapeFaults({{"worker/internal/deep/x.cc", ""}}, 2).size() == 1);
  CHECK(FindShapeFaults({{"sources/x.cc", ""}}, 2).size() == 1);
  CHECK(FindShapeFaults({{"BUILD.bazel", ""}}, 2).empty());
}

}  // namespace
}  // namespace tessera::tests

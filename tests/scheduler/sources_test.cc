// What the scheduler's searches and its judge may be made of, read from their #include lines.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/layering.h"

namespace tessera::tests {
namespace {

using Files = std::map<std::string, std::string>;  // path -> text

// The checkout that this test was built from.
Files Tree() {
  Files files;
  for (SourceFile& file : ReadSources(std::filesystem::canonical("WORKSPACE").parent_path()))
    files[file.path] = std::move(file.text);
  return files;
}

std::string WithoutEnding(const std::string& path) { return path.substr(0, path.rfind('.')); }

// Files of the tree that stand behind `start`: what it includes, and what implements that.
std::set<std::string> Behind(const Files& files, const std::vector<std::string>& start) {
  std::set<std::string> seen;
  std::vector<std::string> todo = start;
  while (!todo.empty()) {
    const std::string path = todo.back();
    todo.pop_back();
    const auto file = files.find(path);
    if (file == files.end() || !seen.insert(path).second) continue;
    for (const std::string& include : IncludesOf(file->second)) {
      todo.push_back(include);
      todo.push_back(WithoutEnding(include) + ".cc");
    }
  }
  return seen;
}

std::vector<std::string> Having(const std::set<std::string>& paths, const std::string& part) {
  std::vector<std::string> found;
  std::copy_if(paths.begin(), paths.end(), std::back_inserter(found),
               [&](const std::string& path) { return path.find(part) != std::string::npos; });
  return found;
}

using Paths = std::vector<std::string>;

TEST_CASE("best calls no other search") {
  const auto behind = Behind(Tree(), {"scheduler/search/best/configuration_search.cc",
                                      "scheduler/search/best/goodput_search.cc"});
  CHECK(behind.size() > 30);
  CHECK(behind.contains("scheduler/search/best/class_search.cc"));
  for (const char* other : {"genetic_search", "partition_flow_search", "tabu_search", "cost_search",
                            "exhaustive_search", "searches."}) {
    INFO(other);
    CHECK(Having(behind, other) == Paths{});
  }
}

TEST_CASE("plan_check shares no code with what plans") {
  const Files files = Tree();
  Paths parts;
  for (const auto& [path, text] : files) {
    if (path.starts_with("scheduler/plan_check/") && path.ends_with(".cc")) parts.push_back(path);
  }
  CHECK(parts.size() >= 5);
  const auto behind = Behind(files, parts);
  CHECK(behind.contains("scheduler/plan_check/parts.h"));
  for (const std::string& path : behind) {
    INFO(path);
    const bool own = path.starts_with("scheduler/plan_check/");
    CHECK((own || path.starts_with("proto/") || path.starts_with("third_party/")));
  }
  // The planner hands its plans over, and that is all that they have to do with each other.
  CHECK(Behind(files, {"scheduler/planner/planner.cc"})
            .contains("scheduler/plan_check/plan_check.cc"));
}

TEST_CASE("no clock, no host and no chance decides a plan") {
  const char* const banned[] = {"<chrono>",   "std::clock",  "absl::Now",     "gettimeofday",
                                "std::time(", "gethostname", "random_device", "getenv",
                                "std::rand",  "<thread>"};
  int read = 0;
  for (const auto& [path, text] : Tree()) {
    const bool decides =
        path.starts_with("scheduler/search/") || path.starts_with("scheduler/planner/") ||
        path.starts_with("scheduler/cost/") || path.starts_with("scheduler/input/");
    if (!decides || path.ends_with(".bazel")) continue;
    ++read;
    for (const char* const word : banned) {
      INFO(path << " has " << word);
      CHECK(text.find(word) == std::string::npos);
    }
  }
  CHECK(read > 100);
}

}  // namespace
}  // namespace tessera::tests

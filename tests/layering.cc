#include "tests/layering.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <utility>

namespace tessera::tests {
namespace {

namespace fs = std::filesystem;

// Whom a folder may include, itself and third_party aside.
const std::map<std::string_view, std::set<std::string_view>>& AllowedEdges() {
  static const auto& edges = *new std::map<std::string_view, std::set<std::string_view>>{
      {"proto", {}},
      {"scheduler", {"proto"}},
      {"kernels", {}},
      {"kvcache", {"kernels"}},
      {"tls", {"proto"}},
      {"worker", {"kvcache", "kernels", "proto", "tls"}},
      {"coordinator", {"scheduler", "proto", "tls"}},
      {"deploy", {"scheduler", "proto", "tls"}},
      {"tests",
       {"tls", "proto", "scheduler", "kernels", "kvcache", "worker", "coordinator", "deploy"}},
      {"third_party", {}},
      {"examples", {}},
  };
  return edges;
}

// Single files of a folder that is otherwise closed to the includer; and devices that compute
// nothing take their time from the planner's cost model.
bool IsAllowedFile(std::string_view from_file, std::string_view include) {
  if (from_file.starts_with("worker/emulation/") && include.starts_with("scheduler/")) return true;
  return from_file.starts_with("worker/") &&
         (include == "scheduler/answer_lengths.h" || include == "scheduler/batcher.h" ||
          include == "scheduler/lanes.h");
}

bool IsAllowedEdge(std::string_view from, std::string_view to) {
  if (from == to || to == "third_party") return true;
  const auto it = AllowedEdges().find(from);
  return it != AllowedEdges().end() && it->second.count(to) > 0;
}

bool IsOurs(std::string_view folder) { return AllowedEdges().count(folder) > 0; }

// Headers that cost seconds in every file that includes them, and whose they are.
constexpr std::pair<std::string_view, std::string_view> kWrapped[] = {
    {"CLI/", "third_party/cli11/flags.cc"},
    {"spdlog/", "third_party/spdlog/log.cc"},
    {"fmt/", "third_party/spdlog/log.cc"},
};

// What is wrong with the include, or "".
std::string MisplacedLibrary(const std::string& path, const std::string& include) {
  for (const auto& [headers, wrapper] : kWrapped) {
    if (!include.starts_with(headers) || path.starts_with(wrapper)) continue;
    return path + " includes <" + include + ">, which costs seconds a file: only " +
           std::string(wrapper) + " may";
  }
  return "";
}

std::string_view ParentOf(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

// Depth-first walk of the include graph; the stack of open files is what a cycle is read from.
class CycleFinder {
 public:
  // What each name uses; what is not itself a key is left alone.
  explicit CycleFinder(std::map<std::string, std::vector<std::string>> uses)
      : includes_(std::move(uses)) {}

  std::vector<std::string> Run() {
    for (const auto& [path, includes] : includes_) Visit(path);
    return std::move(cycles_);
  }

 private:
  void Visit(const std::string& path) {
    const auto file = includes_.find(path);
    if (file == includes_.end() || done_.count(path) > 0) return;
    const auto open = std::find(stack_.begin(), stack_.end(), path);
    if (open != stack_.end()) {
      std::string cycle;
      for (auto it = open; it != stack_.end(); ++it) cycle += *it + " -> ";
      cycles_.push_back(cycle + path);
      return;
    }
    stack_.push_back(path);
    for (const std::string& include : file->second) Visit(include);
    stack_.pop_back();
    done_.insert(path);
  }

  std::map<std::string, std::vector<std::string>> includes_;
  std::vector<std::string> stack_;
  std::set<std::string> done_;
  std::vector<std::string> cycles_;
};

bool IsSource(const fs::path& path) {
  static constexpr std::array<std::string_view, 11> kEndings = {
      ".h", ".hpp", ".cc", ".cpp", ".cu", ".cuh", ".proto", ".bzl", ".bazel", ".py", ".sh"};
  const std::string ending = path.extension().string();
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
}

bool IsGenerated(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(".") || name.starts_with("bazel-") || name == "__pycache__";
}

std::string ReadFile(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

std::string_view FolderOf(std::string_view path) {
  const std::size_t slash = path.find('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

std::vector<std::string> IncludesOf(std::string_view text) {
  std::vector<std::string> includes;
  std::istringstream lines{std::string(text)};
  std::string line;
  while (std::getline(lines, line)) {
    std::size_t at = line.find_first_not_of(" \t");
    if (at == std::string::npos || line[at] != '#') continue;
    at = line.find_first_not_of(" \t", at + 1);
    if (at == std::string::npos || line.compare(at, 7, "include") != 0) continue;
    const std::size_t open = line.find_first_of("\"<", at + 7);
    if (open == std::string::npos) continue;
    const std::size_t close = line.find(line[open] == '<' ? '>' : '"', open + 1);
    if (close != std::string::npos) includes.push_back(line.substr(open + 1, close - open - 1));
  }
  return includes;
}

std::vector<std::string> FindForbiddenIncludes(const std::vector<SourceFile>& files) {
  std::set<std::string> paths;
  for (const SourceFile& file : files) paths.insert(file.path);
  std::vector<std::string> faults;
  for (const SourceFile& file : files) {
    const std::string_view from = FolderOf(file.path);
    const std::string parent(ParentOf(file.path));
    for (const std::string& include : IncludesOf(file.text)) {
      const std::string_view to = FolderOf(include);
      if (const std::string fault = MisplacedLibrary(file.path, include); !fault.empty())
        faults.push_back(fault);
      if (!IsOurs(to)) {
        if (include.starts_with(".") || paths.count(parent + "/" + include) > 0) {
          faults.push_back(file.path + " includes \"" + include +
                           "\": write the path from the repository root");
        }
        continue;
      }
      if (IsAllowedEdge(from, to) || IsAllowedFile(file.path, include)) continue;
      faults.push_back(file.path + " includes \"" + include + "\": " + std::string(from) +
                       " may not use " + std::string(to));
    }
  }
  return faults;
}

std::vector<std::string> FindIncludeCycles(const std::vector<SourceFile>& files) {
  std::map<std::string, std::vector<std::string>> uses;
  for (const SourceFile& file : files) uses[file.path] = IncludesOf(file.text);
  return CycleFinder(std::move(uses)).Run();
}

std::vector<std::string> FindFolderCycles(const std::vector<SourceFile>& files) {
  const auto folder = [](const std::string& path) {
    return fs::path(path).parent_path().generic_string();
  };
  std::map<std::string, std::vector<std::string>> uses;
  for (const SourceFile& file : files) {
    for (const std::string& include : IncludesOf(file.text)) {
      if (folder(include) != folder(file.path)) uses[folder(file.path)].push_back(folder(include));
    }
  }
  return CycleFinder(std::move(uses)).Run();
}

std::vector<std::string> FindShapeFaults(const std::vector<SourceFile>& files,
                                         std::size_t max_lines) {
  static constexpr std::array<std::string_view, 6> kEmptyNames = {"common",   "util",    "utils",
                                                                  "internal", "helpers", "misc"};
  std::set<std::string> faults;
  for (const SourceFile& file : files) {
    const auto lines =
        static_cast<std::size_t>(std::count(file.text.begin(), file.text.end(), '\n'));
    // A folder has one list of targets; it grows with the folder and can't be split.
    const bool is_target_list = file.path.ends_with("BUILD.bazel");
    if (lines > max_lines && !is_target_list) {
      faults.insert(file.path + " has " + std::to_string(lines) + " lines; more than " +
                    std::to_string(max_lines) + " is two files");
    }
    const std::string_view top = FolderOf(file.path);
    if (!top.empty() && !IsOurs(top)) {
      faults.insert("the top-level folder " + std::string(top) +
                    " is not part of the architecture");
    }
    const fs::path folders = fs::path(file.path).parent_path();
    for (const fs::path& folder : folders) {
      if (std::find(kEmptyNames.begin(), kEmptyNames.end(), folder.string()) == kEmptyNames.end()) {
        continue;
      }
      faults.insert(folders.string() + ": the name " + folder.string() +
                    " says nothing; put the thing in the folder it belongs to");
    }
  }
  return {faults.begin(), faults.end()};
}

std::vector<std::string> FindFullFolders(const std::vector<SourceFile>& files,
                                         std::string_view prefix, std::size_t max_units) {
  std::map<std::string, std::set<std::string>> units;
  for (const SourceFile& file : files) {
    const fs::path path(file.path);
    if (!file.path.starts_with(prefix) || path.filename() == "BUILD.bazel") continue;
    units[path.parent_path().generic_string()].insert(path.stem().string());
  }
  std::vector<std::string> faults;
  for (const auto& [folder, names] : units) {
    if (names.size() <= max_units) continue;
    faults.push_back(folder + " has " + std::to_string(names.size()) +
                     " units on one level; more than " + std::to_string(max_units) +
                     " are two folders");
  }
  return faults;
}

std::vector<std::string> FindFieldsWithoutComment(const std::vector<SourceFile>& files) {
  static const std::regex kField(
      R"(\s+(repeated |optional )?(map<.*>|[\w.]+)\s+\w+\s*=\s*\d+.*;.*)");
  std::vector<std::string> faults;
  for (const SourceFile& file : files) {
    if (!file.path.starts_with("proto/") || !file.path.ends_with(".proto")) continue;
    std::istringstream lines(file.text);
    bool said_above = false;
    for (std::string line; std::getline(lines, line);) {
      const bool says = line.find("//") != std::string::npos;
      if (!says && !said_above && std::regex_match(line, kField)) {
        faults.push_back(file.path + ":" + line + " (no comment)");
      }
      said_above = says && line.find_first_not_of(' ') == line.find("//");
    }
  }
  return faults;
}

std::vector<SourceFile> ReadSources(const fs::path& root) {
  std::vector<SourceFile> files;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator();
       ++it) {
    if (IsGenerated(it->path())) {
      it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file() || !IsSource(it->path())) continue;
    files.push_back({it->path().lexically_relative(root).generic_string(), ReadFile(it->path())});
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

}  // namespace tessera::tests

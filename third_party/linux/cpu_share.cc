#include "third_party/linux/cpu_share.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr int kMaxCores = CPU_SETSIZE;

std::string_view Trim(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  text = Trim(text);
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Calls fn(piece) for each piece of `text` between separators.
template <typename Fn>
void ForEachPiece(std::string_view text, char separator, const Fn& fn) {
  while (true) {
    const auto end = text.find(separator);
    fn(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

template <typename T>
void TakeSmaller(std::optional<T>& value, std::optional<T> limit) {
  if (limit && (!value || *limit < *value)) value = limit;
}

struct Limits {
  std::optional<double> cores;
  std::optional<int64_t> memory_bytes;
  std::optional<int64_t> available_bytes;
};

// Bytes of memory.stat's line "KEY NUMBER"; 0 where there is none.
int64_t ParseMemoryStat(std::string_view text, std::string_view key) {
  int64_t bytes = 0;
  ForEachPiece(text, '\n', [&](std::string_view line) {
    if (!line.starts_with(key) || line.substr(key.size(), 1) != " ") return;
    bytes = std::max<int64_t>(0, ParseNumber<int64_t>(line.substr(key.size())).value_or(0));
  });
  return bytes;
}

// One folder's limit, and what those that it holds for have left of it: files in memory are given
// up for whoever needs it, as in the machine's MemAvailable. `total` stands before v1's names.
void ReadMemory(const std::string& folder, const char* limit_file, const char* used_file,
                const std::string& total, Limits& limits) {
  const auto limit = ReadFile(folder + limit_file);
  const auto bytes = limit ? ParseMemoryLimit(*limit) : std::nullopt;
  if (!bytes) return;
  TakeSmaller(limits.memory_bytes, bytes);
  const auto used = ReadFile(folder + used_file);
  const int64_t used_bytes = used ? ParseNumber<int64_t>(*used).value_or(0) : 0;
  const std::string stat = ReadFile(folder + "/memory.stat").value_or("");
  const int64_t file_bytes =
      ParseMemoryStat(stat, total + "inactive_file") + ParseMemoryStat(stat, total + "active_file");
  const int64_t kept_bytes = std::max<int64_t>(0, used_bytes - file_bytes);
  TakeSmaller(limits.available_bytes, std::optional(std::max<int64_t>(0, *bytes - kept_bytes)));
}

// A limit of any ancestor holds, so all of them are read: `visit` gets each folder from `path` up.
template <typename Visit>
void ForEachAncestor(const std::string& mount, std::string path, const Visit& visit) {
  while (true) {
    visit(mount + path);
    if (path.empty() || path == "/") return;
    path.resize(path.rfind('/'));
  }
}

void ReadV2(const std::string& root, std::string_view cgroups, Limits& limits) {
  const auto path = ParseCgroupPath(cgroups, "");
  if (!path) return;
  ForEachAncestor(root + "sys/fs/cgroup", *path, [&](const std::string& folder) {
    if (auto text = ReadFile(folder + "/cpu.max")) TakeSmaller(limits.cores, ParseCpuMax(*text));
    // Above memory.high a group is slowed down until it gives memory back, which weights cannot.
    for (const char* limit : {"/memory.max", "/memory.high"}) {
      ReadMemory(folder, limit, "/memory.current", "", limits);
    }
  });
}

void ReadV1(const std::string& root, std::string_view cgroups, Limits& limits) {
  if (const auto path = ParseCgroupPath(cgroups, "cpu")) {
    // Both names are in use: "cpu,cpuacct" is what is mounted, "cpu" a link to it.
    for (const char* mount : {"sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"}) {
      ForEachAncestor(root + mount, *path, [&](const std::string& folder) {
        const auto quota = ReadFile(folder + "/cpu.cfs_quota_us");
        const auto period = ReadFile(folder + "/cpu.cfs_period_us");
        if (quota && period) TakeSmaller(limits.cores, ParseCfsQuota(*quota, *period));
      });
    }
  }
  if (const auto path = ParseCgroupPath(cgroups, "memory")) {
    ForEachAncestor(root + "sys/fs/cgroup/memory", *path, [&](const std::string& folder) {
      ReadMemory(folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_", limits);
    });
  }
}

}  // namespace

absl::StatusOr<std::vector<int>> ParseCpuList(std::string_view text) {
  std::vector<int> cores;
  std::string problem;
  ForEachPiece(Trim(text), ',', [&](std::string_view piece) {
    const auto dash = piece.find('-');
    const auto first = ParseNumber<int>(piece.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : ParseNumber<int>(piece.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxCores) {
      problem = StrCat("\"", piece, "\"");
      return;
    }
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
  });
  if (!problem.empty()) {
    return absl::InvalidArgumentError(StrCat(
        "list of cores \"", text, "\": ", problem,
        " is no core or range of cores; write it like 0-3,8 (numbers below ", kMaxCores, ")"));
  }
  std::sort(cores.begin(), cores.end());
  if (std::adjacent_find(cores.begin(), cores.end()) != cores.end()) {
    return absl::InvalidArgumentError(
        StrCat("list of cores \"", text, "\" names a core twice; name each once"));
  }
  return cores;
}

std::string CpuList(std::span<const int> cores) {
  std::string list;
  for (size_t i = 0; i < cores.size();) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    list += StrCat(list.empty() ? "" : ",", cores[i], last > i ? StrCat("-", cores[last]) : "");
    i = last + 1;
  }
  return list;
}

std::optional<double> ParseCpuMax(std::string_view text) {
  text = Trim(text);
  const auto space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  return ParseCfsQuota(text.substr(0, space), text.substr(space + 1));
}

std::optional<double> ParseCfsQuota(std::string_view quota, std::string_view period) {
  const auto quota_us = ParseNumber<int64_t>(quota);
  const auto period_us = ParseNumber<int64_t>(period);
  if (!quota_us || !period_us || *quota_us <= 0 || *period_us <= 0) return std::nullopt;
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

std::optional<int64_t> ParseMemoryLimit(std::string_view text) {
  constexpr int64_t kLargestPage = 1 << 16;
  const auto bytes = ParseNumber<int64_t>(text);
  if (!bytes || *bytes < 0) return std::nullopt;
  if (*bytes > std::numeric_limits<int64_t>::max() - kLargestPage) return std::nullopt;
  return bytes;
}

std::optional<int64_t> ParseMemInfo(std::string_view meminfo, std::string_view key) {
  std::optional<int64_t> bytes;
  ForEachPiece(meminfo, '\n', [&](std::string_view line) {
    constexpr std::string_view kUnit = "kB";
    if (line.substr(0, key.size()) != key) return;
    line = Trim(line.substr(key.size()));
    if (line.size() < kUnit.size() || line.substr(line.size() - kUnit.size()) != kUnit) return;
    const auto kilobytes = ParseNumber<int64_t>(line.substr(0, line.size() - kUnit.size()));
    if (kilobytes) bytes = *kilobytes * 1024;
  });
  return bytes;
}

std::optional<std::string> ParseCgroupPath(std::string_view text, std::string_view controller) {
  std::optional<std::string> path;
  ForEachPiece(text, '\n', [&](std::string_view line) {
    const auto first = line.find(':');
    const auto second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) return;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    ForEachPiece(controllers, ',', [&](std::string_view name) {
      if (name == controller) path = std::string(line.substr(second + 1));
    });
  });
  return path;
}

CpuShare ReadCpuShare(const std::vector<int>& affinity, const std::string& root) {
  const std::string base = !root.empty() && root.back() == '/' ? root : root + "/";
  Limits limits;
  if (const auto cgroups = ReadFile(base + "proc/self/cgroup")) {
    ReadV2(base, *cgroups, limits);
    ReadV1(base, *cgroups, limits);
  }
  if (const auto meminfo = ReadFile(base + "proc/meminfo")) {
    TakeSmaller(limits.memory_bytes, ParseMemInfo(*meminfo, "MemTotal:"));
    TakeSmaller(limits.available_bytes, ParseMemInfo(*meminfo, "MemAvailable:"));
  }
  CpuShare share{.cores = affinity, .memory_bytes = limits.memory_bytes.value_or(0)};
  share.available_bytes = limits.available_bytes.value_or(share.memory_bytes);
  std::sort(share.cores.begin(), share.cores.end());
  if (limits.cores && *limits.cores < static_cast<double>(share.cores.size())) {
    // A thread more than the quota pays for would be stopped in the middle of each step.
    share.cores.resize(std::max<size_t>(1, static_cast<size_t>(*limits.cores)));
  }
  return share;
}

std::vector<int> AffinityCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

}  // namespace tessera

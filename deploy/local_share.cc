#include "deploy/local_share.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace tessera::deploy {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // also "max"
  return value;
}

int64_t MemInfoAvailable(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string key;
    int64_t kib = 0;
    if (words >> key >> kib && key == "MemAvailable:") return kib * 1024;
  }
  return kNoLimit;
}

int64_t GroupLeaves(const std::string& limit_file, const std::string& used_file) {
  const std::optional<int64_t> limit = ReadNumber(limit_file);
  if (!limit.has_value()) return kNoLimit;
  return std::max<int64_t>(0, *limit - ReadNumber(used_file).value_or(0));
}

// Cores' worth of time per period; version 2's cpu.max is "QUOTA PERIOD" or "max PERIOD".
double CpuQuota(const std::string& root) {
  std::ifstream v2(root + "/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (v2 >> quota >> period && period > 0) return quota / period;
  const auto q = ReadNumber(root + "/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const auto p = ReadNumber(root + "/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (q.value_or(-1) > 0 && p.value_or(0) > 0)
    return static_cast<double>(*q) / static_cast<double>(*p);
  return std::numeric_limits<double>::infinity();
}

}  // namespace

absl::StatusOr<std::vector<std::vector<int>>> SplitCores(std::span<const int> cores, int workers) {
  if (workers < 1 || static_cast<size_t>(workers) > cores.size()) {
    return absl::InvalidArgumentError(absl::StrCat(workers, " workers need a core each; ",
                                                   cores.size(),
                                                   " cores may be used here (--workers, --cpus)"));
  }
  std::vector<std::vector<int>> shares(workers);
  size_t next = 0;
  for (int i = 0; i < workers; ++i) {
    const size_t count =
        cores.size() / workers + (static_cast<size_t>(i) < cores.size() % workers ? 1 : 0);
    shares[i].assign(cores.begin() + next, cores.begin() + next + count);
    next += count;
  }
  return shares;
}

std::string CoreList(std::span<const int> cores) {
  std::string list;
  for (size_t i = 0; i < cores.size();) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    if (!list.empty()) list += ",";
    absl::StrAppend(&list, cores[i]);
    if (last > i) absl::StrAppend(&list, "-", cores[last]);
    i = last + 1;
  }
  return list;
}

int64_t AvailableMemoryBytes(const std::string& root) {
  const std::string group = root + "/sys/fs/cgroup";
  return std::min({MemInfoAvailable(root),
                   GroupLeaves(group + "/memory.max", group + "/memory.current"),
                   GroupLeaves(group + "/memory/memory.limit_in_bytes",
                               group + "/memory/memory.usage_in_bytes")});
}

std::vector<int> AllowedCores(const std::string& root) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &allowed)) cores.push_back(core);
    }
  }
  const double quota = std::ceil(CpuQuota(root));
  if (quota >= 1 && quota < static_cast<double>(cores.size()))
    cores.resize(static_cast<size_t>(quota));
  return cores;
}

}  // namespace tessera::deploy

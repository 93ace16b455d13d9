// What this process may use of a Linux machine: cores and bytes of memory, after the affinity mask
// and the control groups (cgroup v1 and v2) it runs in. Containers and `docker run --cpus` are seen
// through these.
//
// The parsers are pure functions of file contents; ReadCpuShare takes the root of the file system,
// so that tests plant trees. Thread-safe. Sources: Linux Documentation/admin-guide/cgroup-v2.rst,
// Documentation/admin-guide/cgroup-v1/.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera {

struct CpuShare {
  std::vector<int> cores;    // ascending, at least one; no more than the CPU quota can keep busy
  int64_t memory_bytes = 0;  // the smallest limit that applies, at most what the machine has
  // What processes here may still take: the least that a limit or the machine leaves of it, with
  // what files hold in memory.
  int64_t available_bytes = 0;
};

// "0-3,8": core numbers, ascending. InvalidArgument says what is wrong with the list (--cpus).
absl::StatusOr<std::vector<int>> ParseCpuList(std::string_view text);
// The same form, of ascending cores.
std::string CpuList(std::span<const int> cores);

// v2 cpu.max: "200000 100000" is 2 cores; "max 100000" and anything unreadable is no limit.
std::optional<double> ParseCpuMax(std::string_view text);
// v1 cpu.cfs_quota_us and cpu.cfs_period_us; a quota of -1 is no limit.
std::optional<double> ParseCfsQuota(std::string_view quota, std::string_view period);
// v2 memory.max or v1 memory.limit_in_bytes; "max", and v1's page-rounded 2^63, are no limit.
std::optional<int64_t> ParseMemoryLimit(std::string_view text);
// The line KEY of /proc/meminfo ("MemAvailable:"), in bytes.
std::optional<int64_t> ParseMemInfo(std::string_view meminfo, std::string_view key);
// The path of this process in a hierarchy, from /proc/self/cgroup: controller "" is v2's line
// "0::/path".
std::optional<std::string> ParseCgroupPath(std::string_view text, std::string_view controller);

// `affinity`: the cores that the scheduler may run us on. `root`: "/" but in tests.
CpuShare ReadCpuShare(const std::vector<int>& affinity, const std::string& root = "/");

// sched_getaffinity of this process.
std::vector<int> AffinityCores();

}  // namespace tessera

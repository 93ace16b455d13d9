#include "deploy/local_share.h"

#include "absl/strings/str_cat.h"
#include "third_party/linux/cpu_share.h"

namespace tessera::deploy {

absl::StatusOr<std::vector<std::vector<int>>> SplitCores(std::span<const int> cores, int workers) {
  if (workers < 1 || static_cast<size_t>(workers) > cores.size()) {
    const bool one = cores.size() == 1;
    return absl::InvalidArgumentError(
        absl::StrCat("--workers ", workers, ": every worker needs a core of its own, and ",
                     cores.size(), one ? " core" : " cores", " (", CpuList(cores),
                     ") may be used here: give --workers ", cores.size(), one ? "" : " or fewer",
                     ", or allow more (taskset, the control group's CPU quota)"));
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

int64_t AvailableMemoryBytes(const std::string& root) {
  return ReadCpuShare(AffinityCores(), root).available_bytes;
}

std::vector<int> AllowedCores(const std::string& root) {
  return ReadCpuShare(AffinityCores(), root).cores;
}

}  // namespace tessera::deploy

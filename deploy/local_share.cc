#include "deploy/local_share.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "third_party/linux/cpu_share.h"

namespace tessera::deploy {

absl::StatusOr<std::vector<std::vector<int>>> SplitCores(std::span<const int> cores, int workers) {
  const auto count = static_cast<int>(cores.size());
  if (workers < 1 || workers > count * kMaxWorkersPerCore) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--workers ", workers, ": ", count, count == 1 ? " core" : " cores", " (", CpuList(cores),
        ") may be used here, each by at most ", kMaxWorkersPerCore, " workers: give --workers ",
        count * kMaxWorkersPerCore, " or fewer, or allow more cores (taskset, the control group's ",
        "CPU quota)"));
  }
  std::vector<std::vector<int>> shares(workers);
  if (workers > count) {
    for (int i = 0; i < workers; ++i) shares[i] = {cores[i % count]};
    return shares;
  }
  int next = 0;
  for (int i = 0; i < workers; ++i) {
    const int size = count / workers + (i < count % workers ? 1 : 0);
    shares[i].assign(cores.begin() + next, cores.begin() + next + size);
    next += size;
  }
  return shares;
}

std::vector<int64_t> SplitMemory(int64_t available_bytes, std::span<const int64_t> asked_bytes) {
  std::vector<int64_t> bytes(asked_bytes.begin(), asked_bytes.end());
  if (available_bytes <= 0 || bytes.empty()) return bytes;
  const int64_t usable = available_bytes / 10 * 9;
  for (int64_t& one : bytes) {
    if (one <= 0) one = usable / static_cast<int64_t>(bytes.size());
  }
  const double sum = std::accumulate(bytes.begin(), bytes.end(), 0.0);
  const double part = std::min(1.0, static_cast<double>(usable) / sum);
  if (part == 1.0) return bytes;
  for (int64_t& one : bytes) one = static_cast<int64_t>(static_cast<double>(one) * part);
  return bytes;
}

int64_t AvailableMemoryBytes(const std::string& root) {
  return ReadCpuShare(AffinityCores(), root).available_bytes;
}

std::vector<int> AllowedCores(const std::string& root) {
  return ReadCpuShare(AffinityCores(), root).cores;
}

}  // namespace tessera::deploy

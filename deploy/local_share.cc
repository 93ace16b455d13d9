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

namespace {

// Moves up to `count` of `free` to the result, those that are in `near` first.
std::vector<int> TakeCores(size_t count, std::span<const int> near, std::vector<int>& free) {
  std::stable_partition(free.begin(), free.end(), [&](int core) {
    return std::find(near.begin(), near.end(), core) != near.end();
  });
  count = std::min(count, free.size());
  std::vector<int> taken(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(count));
  free.erase(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(count));
  std::sort(taken.begin(), taken.end());
  std::sort(free.begin(), free.end());
  return taken;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<int>>> SplitCoresByNeed(std::span<const int> cores,
                                                               std::span<const CoreNeed> needs) {
  const auto computing =
      std::count_if(needs.begin(), needs.end(), [](const CoreNeed& need) { return need.computes; });
  const size_t driving = needs.size() - static_cast<size_t>(computing);
  // Each driver has one core at least, and so has each that computes.
  if (driving == 0 || cores.size() < needs.size()) {
    return SplitCores(cores, static_cast<int>(needs.size()));
  }
  constexpr size_t kMaxDrivingCores = 4;
  const size_t each = computing == 0 ? cores.size() / driving
                                     : std::min(kMaxDrivingCores, cores.size() / (2 * driving));
  std::vector<int> free(cores.begin(), cores.end());
  std::vector<std::vector<int>> shares(needs.size());
  for (size_t i = 0; i < needs.size(); ++i) {
    if (!needs[i].computes) shares[i] = TakeCores(std::max<size_t>(1, each), needs[i].near, free);
  }
  if (computing == 0) return shares;
  const auto rest = SplitCores(free, static_cast<int>(computing));
  if (!rest.ok()) return rest.status();
  auto next = rest->begin();
  for (size_t i = 0; i < needs.size(); ++i) {
    if (needs[i].computes) shares[i] = *next++;
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

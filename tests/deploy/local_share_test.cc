#include "deploy/local_share.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace tessera::deploy {
TEST_CASE("cores are split into disjoint shares that differ by at most one") {
  const std::vector<int> cores = {0, 1, 2, 3, 8, 9, 10};
  for (int workers = 1; workers <= 7; ++workers) {
    const auto shares = SplitCores(cores, workers).value();
    REQUIRE(static_cast<int>(shares.size()) == workers);
    std::vector<int> joined;
    for (const auto& share : shares) {
      CHECK(share.size() >= cores.size() / workers);
      CHECK(share.size() <= cores.size() / workers + 1);
      joined.insert(joined.end(), share.begin(), share.end());
    }
    CHECK(joined == cores);
  }
  const int too_many = static_cast<int>(cores.size()) * kMaxWorkersPerCore + 1;
  for (int workers : {0, -1, too_many}) {
    const auto refused = SplitCores(cores, workers);
    CHECK(absl::IsInvalidArgument(refused.status()));
    const std::string text(refused.status().message());
    CHECK(text.find("--workers " + std::to_string(workers)) != std::string::npos);
    CHECK(text.find("7 cores (0-3,8-10)") != std::string::npos);
    CHECK(text.find("--cpus") == std::string::npos);  // `tessera up` has no such flag
  }
}

TEST_CASE("more workers than cores take the cores in turn, one each") {
  const std::vector<int> cores = {3, 7};
  const auto shares = SplitCores(cores, 5).value();
  CHECK(shares == std::vector<std::vector<int>>{{3}, {7}, {3}, {7}, {3}});
}

TEST_CASE("workers get the memory they ask for, or less in proportion where there is not enough") {
  const std::vector<int64_t> unequal = {8, 8, 12, 10};
  CHECK(SplitMemory(1000, unequal) == unequal);
  CHECK(SplitMemory(0, unequal) == unequal);  // nobody knows how much there is
  CHECK(SplitMemory(100, std::vector<int64_t>{90, 90}) == std::vector<int64_t>{45, 45});
  CHECK(SplitMemory(100, std::vector<int64_t>{120, 60}) == std::vector<int64_t>{60, 30});
  CHECK(SplitMemory(100, std::vector<int64_t>{0, 0, 0}) == std::vector<int64_t>{30, 30, 30});
  CHECK(SplitMemory(100, std::vector<int64_t>{20, 0}) == std::vector<int64_t>{20, 45});
}

TEST_CASE("memory is what the machine and the control group leave, whichever is less") {
  const tests::TemporaryFolder root;  // a tree like /proc and /sys/fs/cgroup
  root.Write("/proc/self/cgroup", "0::/\n");
  root.Write("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable:   800 kB\nBuffers: 5 kB\n");
  CHECK(AvailableMemoryBytes(root.path()) == 800 * 1024);
  root.Write("/sys/fs/cgroup/memory.max", "max\n");
  CHECK(AvailableMemoryBytes(root.path()) == 800 * 1024);
  root.Write("/sys/fs/cgroup/memory.max", "500000\n");
  root.Write("/sys/fs/cgroup/memory.current", "100000\n");
  CHECK(AvailableMemoryBytes(root.path()) == 400000);
  root.Write("/sys/fs/cgroup/memory.current", "600000\n");
  CHECK(AvailableMemoryBytes(root.path()) == 0);
}

TEST_CASE("control groups of version 1 bound memory too") {
  const tests::TemporaryFolder root;
  root.Write("/proc/self/cgroup", "2:cpu,cpuacct:/\n1:memory:/\n");
  root.Write("/proc/meminfo", "MemAvailable: 800 kB\n");
  root.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "300000\n");
  root.Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "50000\n");
  CHECK(AvailableMemoryBytes(root.path()) == 250000);
}

TEST_CASE("a CPU quota bounds the cores, rounded down, as the workers round it") {
  const tests::TemporaryFolder root;
  root.Write("/proc/self/cgroup", "0::/pod/box\n");
  const size_t all = AllowedCores(root.path()).size();
  REQUIRE(all >= 1);
  root.Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  CHECK(AllowedCores(root.path()).size() == all);
  root.Write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  CHECK(AllowedCores(root.path()).size() == 1);
  root.Write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  CHECK(AllowedCores(root.path()).size() == 1);
  // A limit of the process's own group, which is not the root's.
  root.Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  root.Write("/sys/fs/cgroup/pod/cpu.max", "100000 100000\n");
  CHECK(AllowedCores(root.path()).size() == 1);
  root.Write("/sys/fs/cgroup/pod/cpu.max", "max 100000\n");
  root.Write("/sys/fs/cgroup/cpu.max", "99900000 100000\n");
  CHECK(AllowedCores(root.path()).size() == all);
}

}  // namespace tessera::deploy

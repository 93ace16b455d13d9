#include "deploy/local_share.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tessera::deploy {
namespace {

// A tree like /proc and /sys/fs/cgroup.
class Root {
 public:
  Root() {
    std::string name = (std::filesystem::temp_directory_path() / "share-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Root() { std::filesystem::remove_all(path_); }
  void Plant(const std::string& file, const std::string& text) const {
    const std::filesystem::path full = path_ + file;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

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
  for (int workers : {0, -1, 8}) {
    const auto refused = SplitCores(cores, workers);
    CHECK(absl::IsInvalidArgument(refused.status()));
    const std::string text(refused.status().message());
    CHECK(text.find("--workers " + std::to_string(workers)) != std::string::npos);
    CHECK(text.find("7 cores (0-3,8-10)") != std::string::npos);
    CHECK(text.find("--cpus") == std::string::npos);  // `tessera up` has no such flag
  }
}

TEST_CASE("a list of cores is written as --cpus takes it") {
  CHECK(CoreList(std::vector<int>{0, 1, 2, 3, 7}) == "0-3,7");
  CHECK(CoreList(std::vector<int>{5}) == "5");
  CHECK(CoreList(std::vector<int>{}) == "");
  CHECK(CoreList(std::vector<int>{1, 3, 4}) == "1,3-4");
}

TEST_CASE("memory is what the machine and the control group leave, whichever is less") {
  Root root;
  root.Plant("/proc/self/cgroup", "0::/\n");
  root.Plant("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable:   800 kB\nBuffers: 5 kB\n");
  CHECK(AvailableMemoryBytes(root.path()) == 800 * 1024);
  root.Plant("/sys/fs/cgroup/memory.max", "max\n");
  CHECK(AvailableMemoryBytes(root.path()) == 800 * 1024);
  root.Plant("/sys/fs/cgroup/memory.max", "500000\n");
  root.Plant("/sys/fs/cgroup/memory.current", "100000\n");
  CHECK(AvailableMemoryBytes(root.path()) == 400000);
  root.Plant("/sys/fs/cgroup/memory.current", "600000\n");
  CHECK(AvailableMemoryBytes(root.path()) == 0);
}

TEST_CASE("control groups of version 1 bound memory too") {
  Root root;
  root.Plant("/proc/self/cgroup", "2:cpu,cpuacct:/\n1:memory:/\n");
  root.Plant("/proc/meminfo", "MemAvailable: 800 kB\n");
  root.Plant("/sys/fs/cgroup/memory/memory.limit_in_bytes", "300000\n");
  root.Plant("/sys/fs/cgroup/memory/memory.usage_in_bytes", "50000\n");
  CHECK(AvailableMemoryBytes(root.path()) == 250000);
}

TEST_CASE("a CPU quota bounds the cores, rounded down, as the workers round it") {
  Root root;
  root.Plant("/proc/self/cgroup", "0::/pod/box\n");
  const size_t all = AllowedCores(root.path()).size();
  REQUIRE(all >= 1);
  root.Plant("/sys/fs/cgroup/cpu.max", "max 100000\n");
  CHECK(AllowedCores(root.path()).size() == all);
  root.Plant("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  CHECK(AllowedCores(root.path()).size() == 1);
  root.Plant("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  CHECK(AllowedCores(root.path()).size() == 1);
  // A limit of the process's own group, which is not the root's.
  root.Plant("/sys/fs/cgroup/cpu.max", "max 100000\n");
  root.Plant("/sys/fs/cgroup/pod/cpu.max", "100000 100000\n");
  CHECK(AllowedCores(root.path()).size() == 1);
  root.Plant("/sys/fs/cgroup/pod/cpu.max", "max 100000\n");
  root.Plant("/sys/fs/cgroup/cpu.max", "99900000 100000\n");
  CHECK(AllowedCores(root.path()).size() == all);
}

}  // namespace tessera::deploy

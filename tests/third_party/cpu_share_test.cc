#include "third_party/linux/cpu_share.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/temporary_folder.h"

namespace tessera {
namespace {

// A file system with only what control groups say.
class PlantedTree : public tests::TemporaryFolder {
 public:
  PlantedTree() { Write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:        1 kB\n"); }
};

const std::vector<int> kEight = {0, 1, 2, 3, 4, 5, 6, 7};
constexpr int64_t kGiB = int64_t{1} << 30;

TEST_CASE("lists of cores") {
  CHECK(*ParseCpuList("0") == std::vector<int>{0});
  CHECK(*ParseCpuList("0-3,8\n") == std::vector<int>{0, 1, 2, 3, 8});
  CHECK(*ParseCpuList("8,1-2") == std::vector<int>{1, 2, 8});
  for (const char* bad : {"", "a", "3-1", "-1", "1,,2", "0-1024", "1-", "1,1", "99999999999"}) {
    CAPTURE(bad);
    CHECK(ParseCpuList(bad).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("lists of cores as they are written") {
  CHECK(CpuList(std::vector<int>{0, 1, 2, 3, 7}) == "0-3,7");
  CHECK(CpuList(std::vector<int>{5}) == "5");
  CHECK(CpuList(std::vector<int>{}) == "");
  CHECK(CpuList(std::vector<int>{1, 3, 4}) == "1,3-4");
}

TEST_CASE("quotas and limits") {
  CHECK(*ParseCpuMax("200000 100000\n") == 2.0);
  CHECK(*ParseCpuMax("50000 100000") == 0.5);
  CHECK_FALSE(ParseCpuMax("max 100000").has_value());
  CHECK_FALSE(ParseCpuMax("").has_value());
  CHECK_FALSE(ParseCfsQuota("-1\n", "100000\n").has_value());
  CHECK(*ParseCfsQuota("150000\n", "100000\n") == 1.5);
  CHECK_FALSE(ParseCfsQuota("1", "0").has_value());
  CHECK(*ParseMemoryLimit("1073741824\n") == kGiB);
  CHECK_FALSE(ParseMemoryLimit("max\n").has_value());
  CHECK_FALSE(ParseMemoryLimit("9223372036854771712\n").has_value());
  CHECK(*ParseMemInfo("Junk: 1 kB\nMemTotal:   2048 kB\n", "MemTotal:") == 2048 * 1024);
  CHECK_FALSE(ParseMemInfo("MemTotal: lots", "MemTotal:").has_value());
}

TEST_CASE("paths in /proc/self/cgroup") {
  const std::string v1 = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/system.slice\n";
  CHECK(*ParseCgroupPath(v1, "cpu") == "/docker/abc");
  CHECK(*ParseCgroupPath(v1, "memory") == "/docker/abc");
  CHECK(*ParseCgroupPath(v1, "") == "/system.slice");
  CHECK_FALSE(ParseCgroupPath(v1, "pids").has_value());
}

TEST_CASE("no control group: the affinity mask and the machine's memory") {
  PlantedTree tree;
  const CpuShare share = ReadCpuShare({3, 1}, tree.path());
  CHECK(share.cores == std::vector<int>{1, 3});
  CHECK(share.memory_bytes == 16 * kGiB);
}

TEST_CASE("v2: the smallest limit on the way up holds") {
  PlantedTree tree;
  tree.Write("proc/self/cgroup", "0::/pod/container\n");
  tree.Write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  tree.Write("sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
  tree.Write("sys/fs/cgroup/pod/container/memory.max", "4294967296\n");
  tree.Write("sys/fs/cgroup/pod/memory.max", "8589934592\n");
  tree.Write("sys/fs/cgroup/pod/container/memory.current", "1073741824\n");
  tree.Write("sys/fs/cgroup/pod/memory.current", "7516192768\n");
  const CpuShare share = ReadCpuShare(kEight, tree.path());
  CHECK(share.cores == std::vector<int>{0, 1});
  CHECK(share.memory_bytes == 4 * kGiB);
  CHECK(share.available_bytes == kGiB);  // a neighbour in the pod has taken the rest
}

TEST_CASE("v2: groups without a limit say max, and what slows a group down is its limit too") {
  PlantedTree tree;
  tree.Write("proc/self/cgroup", "0::/pod/container\n");
  for (const char* folder : {"sys/fs/cgroup/pod/container", "sys/fs/cgroup/pod"}) {
    tree.Write(std::string(folder) + "/memory.max", "max\n");
    tree.Write(std::string(folder) + "/memory.high", "max\n");
    tree.Write(std::string(folder) + "/memory.current", "1073741824\n");
  }
  CHECK(ReadCpuShare(kEight, tree.path()).memory_bytes == 16 * kGiB);
  CHECK(ReadCpuShare(kEight, tree.path()).available_bytes == 16 * kGiB);
  tree.Write("sys/fs/cgroup/pod/memory.high", "3221225472\n");
  CHECK(ReadCpuShare(kEight, tree.path()).memory_bytes == 3 * kGiB);
  CHECK(ReadCpuShare(kEight, tree.path()).available_bytes == 2 * kGiB);
}

TEST_CASE("v1: limits above hold too, and what neighbours below them have taken is gone") {
  PlantedTree tree;
  const std::string mount = "sys/fs/cgroup/memory/";
  tree.Write("proc/self/cgroup", "1:memory:/pod/container\n");
  tree.Write(mount + "pod/container/memory.limit_in_bytes", "9223372036854771712\n");
  tree.Write(mount + "pod/container/memory.usage_in_bytes", "1073741824\n");
  tree.Write(mount + "pod/memory.limit_in_bytes", "6442450944\n");
  tree.Write(mount + "pod/memory.usage_in_bytes", "5368709120\n");
  tree.Write(mount + "memory.limit_in_bytes", "9223372036854771712\n");
  CHECK(ReadCpuShare(kEight, tree.path()).memory_bytes == 6 * kGiB);
  CHECK(ReadCpuShare(kEight, tree.path()).available_bytes == kGiB);
}

TEST_CASE("v1 in a container: the path is the host's, the limits stand at the mount itself") {
  PlantedTree tree;
  tree.Write("proc/self/cgroup", "1:memory:/docker/abc\n");
  tree.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  tree.Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
  CHECK(ReadCpuShare(kEight, tree.path()).memory_bytes == 2 * kGiB);
  CHECK(ReadCpuShare(kEight, tree.path()).available_bytes == kGiB);
}

TEST_CASE("what files hold in memory is still there to be taken") {
  PlantedTree tree;
  tree.Write("proc/self/cgroup", "1:memory:/box\n0::/box\n");
  tree.Write("sys/fs/cgroup/box/memory.max", "4294967296\n");
  tree.Write("sys/fs/cgroup/box/memory.current", "4294967296\n");
  tree.Write("sys/fs/cgroup/box/memory.stat",
             "anon 2147483648\nfile 2147483648\ninactive_file 1073741824\nactive_file 4096\n");
  CHECK(ReadCpuShare(kEight, tree.path()).available_bytes == kGiB + 4096);
  tree.Write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2147483648\n");
  tree.Write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "2147483648\n");
  tree.Write("sys/fs/cgroup/memory/box/memory.stat", "inactive_file 5\ntotal_inactive_file 8192\n");
  CHECK(ReadCpuShare(kEight, tree.path()).available_bytes == 8192);
  // More than is used, as counters that are read one after the other can say.
  tree.Write("sys/fs/cgroup/memory/box/memory.stat", "total_active_file 8589934592\n");
  CHECK(ReadCpuShare(kEight, tree.path()).available_bytes == kGiB + 4096);
}

TEST_CASE("v2 in a namespace: the limits stand at the mount itself") {
  PlantedTree tree;
  tree.Write("proc/self/cgroup", "0::/\n");
  tree.Write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  tree.Write("sys/fs/cgroup/memory.max", "1073741824\n");
  const CpuShare share = ReadCpuShare(kEight, tree.path());
  CHECK(share.cores == std::vector<int>{0});  // less than a core is still one thread
  CHECK(share.memory_bytes == kGiB);
}

TEST_CASE("v1: quota and memory from their own hierarchies") {
  PlantedTree tree;
  tree.Write("proc/self/cgroup", "2:cpu,cpuacct:/box\n1:memory:/box\n");
  tree.Write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "300000\n");
  tree.Write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  tree.Write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2147483648\n");
  tree.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const CpuShare share = ReadCpuShare(kEight, tree.path());
  CHECK(share.cores.size() == 3);
  CHECK(share.memory_bytes == 2 * kGiB);
}

TEST_CASE("this machine has at least a core and some memory") {
  const CpuShare share = ReadCpuShare(AffinityCores());
  CHECK_FALSE(share.cores.empty());
  CHECK(share.memory_bytes > 0);
}

}  // namespace
}  // namespace tessera

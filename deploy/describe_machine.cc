#include "deploy/describe_machine.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <string_view>
#include <thread>

#include "absl/strings/str_format.h"
#include "deploy/local_share.h"
#include "proto/device_names.h"
#include "third_party/absl/str_cat.h"
#include "third_party/linux/host_name.h"

namespace tessera::deploy {
namespace {

namespace fs = std::filesystem;

constexpr double kGib = 1073741824.0;

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

// Reads the first processor in /proc/cpuinfo.
void ReadCpu(const std::string& root, MachineFacts* facts) {
  std::ifstream file(root + "/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && !line.empty()) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = Trimmed(line.substr(0, colon));
    const std::string value = Trimmed(line.substr(colon + 1));
    if (key == "model name") facts->cpu_model = value;
    if (key == "cpu MHz") facts->gigahertz = std::atof(value.c_str()) / 1000;
    if (key == "flags") {
      // Two fused multiply-adds per cycle of 16 (AVX-512) or 8 (AVX2) lanes.
      facts->fp32_per_cycle = value.find("avx512f") != std::string::npos ? 64 : 32;
    }
  }
}

// Every core reads its own part of a buffer that no cache holds.
double TimeMemoryReads(int cores) {
  constexpr size_t kWords = size_t{8} << 20;  // 64 MiB per core
  constexpr double kSeconds = 0.2;
  std::vector<double> rates(static_cast<size_t>(cores), 0);
  std::vector<std::thread> threads;
  for (int core = 0; core < cores; ++core) {
    threads.emplace_back([core, &rates] {
      const std::vector<uint64_t> words(kWords, 1);
      const auto begin = std::chrono::steady_clock::now();
      double seconds = 0;
      uint64_t sum = 0;
      double bytes = 0;
      while (seconds < kSeconds) {
        sum += std::accumulate(words.begin(), words.end(), uint64_t{0});
        bytes += kWords * sizeof(uint64_t);
        seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      }
      rates[static_cast<size_t>(core)] = sum > 0 ? bytes / seconds : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// The host's, so that a worker without --name is one of this description; else one that every
// reader of the file takes.
std::string MachineName(const std::string& host_name) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  };
  const bool valid = !host_name.empty() && std::isalnum(static_cast<unsigned char>(host_name[0])) &&
                     std::all_of(host_name.begin(), host_name.end(), fits);
  return valid ? host_name : "this-machine";
}

GpuFacts FactsOf(const v1::ListedDevice& device) {
  const v1::DeviceInfo& info = device.info();
  return {info.kind(), info.gpu_name(), info.memory_bytes(), info.memory_read_bytes_per_second(),
          device.half_flops_per_second()};
}

// Up to the machine's name.
std::string Opening(const std::string& machine) {
  return StrCat(
      "# A cluster description, begun by `tessera plan init` on one machine. Add your other "
      "machines, give the\n"
      "# links between them, and try:\n"
      "#   tessera plan cluster.yaml --model Qwen2.5-0.5B\n"
      "# or serve: tessera up MODEL --cluster cluster.yaml\n"
      "# Workers are named MACHINE/INDEX as in this file (tessera-worker --name ",
      machine,
      "/0);\n"
      "# one without --name takes its host's name and 0.\n"
      "# Quantities are written with their unit; bandwidth is per direction.\n"
      "machines:\n"
      "- name: ",
      machine, "\n");
}

void AppendCpuKind(const MachineFacts& facts, std::string* kinds) {
  const double gigahertz = facts.gigahertz > 0 ? facts.gigahertz : 2.5;
  const double flops = facts.cores * gigahertz * 1e9 * facts.fp32_per_cycle;
  absl::StrAppendFormat(kinds,
                        "- name: cpu\n"
                        "  # %s, %d cores.\n"
                        "  memory: %.1f GiB               # free for this process\n",
                        facts.cpu_model, facts.cores,
                        static_cast<double>(facts.memory_bytes) / kGib);
  if (facts.read_bytes_per_second > 0) {
    absl::StrAppendFormat(
        kinds, "  memory_bandwidth: %.1f GB/s    # measured just now, all cores reading\n",
        facts.read_bytes_per_second / 1e9);
  } else {
    absl::StrAppendFormat(kinds, "  memory_bandwidth: %.0f GB/s     # a guess: 10 GB/s per core\n",
                          10.0 * facts.cores);
  }
  absl::StrAppendFormat(
      kinds,
      "  dense_flops_per_second: %.3f TFLOPS  # estimate: %d cores x %.2f GHz x %d per cycle\n"
      "  source: \"tessera plan init\"\n",
      flops / 1e12, facts.cores, gigahertz, facts.fp32_per_cycle);
}

void AppendEmulatedKind(std::string* kinds) {
  *kinds += StrCat("- name: ", kEmulatedGpuDevice,
                   "\n"
                   "  memory: 1 GiB\n"
                   "  memory_bandwidth: 0.1 GB/s       # a guess\n"
                   "  dense_flops_per_second: 0.0001 TFLOPS  # a guess: an emulator\n"
                   "  source: \"tessera up\"\n");
}

// Lowers the facts of a kind to what each card of it has.
void Lower(const GpuFacts& gpu, GpuFacts* kind) {
  if (kind->kind.empty()) *kind = gpu;
  kind->memory_bytes = std::min(kind->memory_bytes, gpu.memory_bytes);
  kind->read_bytes_per_second = std::min(kind->read_bytes_per_second, gpu.read_bytes_per_second);
  kind->half_flops_per_second = std::min(kind->half_flops_per_second, gpu.half_flops_per_second);
}

void AppendGpuKind(const std::string& kind, const GpuFacts& gpu, std::string* kinds) {
  const bool measured = gpu.read_bytes_per_second > 0 && gpu.half_flops_per_second > 0;
  absl::StrAppendFormat(kinds, "- name: %s\n", Quoted(kind));
  if (!measured) {
    *kinds +=
        "  # The catalogue does not know this card: serve on it with `tessera up MODEL --devices "
        "all`\n"
        "  # and have it measured and described by `tessera profile`, or fill in its data sheet.\n";
  }
  if (gpu.memory_bytes > 0) {
    absl::StrAppendFormat(kinds, "  memory: %.1f GiB\n",
                          static_cast<double>(gpu.memory_bytes) / kGib);
  } else {
    *kinds += "  # memory: 24 GiB\n";
  }
  if (measured) {
    absl::StrAppendFormat(kinds,
                          "  memory_bandwidth: %.1f GB/s  # measured just now, reading\n"
                          "  dense_flops_per_second: %.3f TFLOPS  # measured, 16 bits\n"
                          "  source: \"tessera plan init\"\n",
                          gpu.read_bytes_per_second / 1e9, gpu.half_flops_per_second / 1e12);
  } else {
    *kinds +=
        "  # memory_bandwidth: 600 GB/s\n"
        "  # dense_flops_per_second: 120 TFLOPS  # 16 bits, no sparsity\n";
  }
}

// The link between the cards of the machine; `known`: the catalogue has one for their kind.
void AppendInside(bool known, std::string* machine) {
  *machine += known
                  ? "  # Link between the cards; without this line the catalogue's value for their "
                    "kind applies:\n"
                    "  # inside: {bandwidth: 25 GB/s, latency: 10 us}  # about 4 GB/s without peer "
                    "access\n"
                  : "  # A guess of the link between the cards, without peer access:\n"
                    "  inside: {bandwidth: 4 GB/s, latency: 10 us}\n";
}

}  // namespace

bool HasUnknownGpu(const v1::DeviceList& devices) {
  return std::any_of(devices.devices().begin(), devices.devices().end(),
                     [](const v1::ListedDevice& device) {
                       return device.info().kind() == device.info().gpu_name();
                     });
}

MachineFacts ReadMachineFacts(const std::string& root, const v1::DeviceList& devices) {
  MachineFacts facts;
  ReadCpu(root, &facts);
  facts.cores = std::max<int>(1, static_cast<int>(AllowedCores(root).size()));
  facts.memory_bytes = AvailableMemoryBytes(root);
  if (root.empty()) facts.host_name = HostName();
  for (const v1::ListedDevice& device : devices.devices()) {
    facts.gpus.push_back(FactsOf(device));
  }
  if (root.empty() && facts.gpus.empty())
    facts.read_bytes_per_second = TimeMemoryReads(facts.cores);
  return facts;
}

std::string DescribeMachine(const MachineFacts& facts) {
  std::map<std::string, int> count;     // by kind
  std::map<std::string, GpuFacts> own;  // kinds that the catalogue has not
  std::vector<std::string> order;
  for (const GpuFacts& gpu : facts.gpus) {
    if (gpu.kind == gpu.model) Lower(gpu, &own[gpu.kind]);
    if (count[gpu.kind]++ == 0) order.push_back(gpu.kind);
  }
  std::string out = Opening(MachineName(facts.host_name));
  out +=
      "  # site: s1                       # machines of one site are joined by tiers.site\n"
      "  # rack: r1                       # of one rack by tiers.rack\n"
      "  # price: 1.50 USD/h              # of the whole machine, for plans that look at prices\n"
      "  # uplink: {bandwidth: 10 Gbit/s, latency: 50 us}  # shared by all that leaves the "
      "machine\n"
      "  devices:\n";
  if (facts.gpus.empty()) out += "  - {kind: cpu, count: 1}\n";
  for (const std::string& kind : order) {
    const bool known = !own.contains(kind);
    out += StrCat("  - {kind: ", known ? kind : Quoted(kind), ", count: ", count[kind], "}\n");
  }
  if (facts.gpus.size() > 1) AppendInside(own.empty(), &out);
  out +=
      "# tiers:                            # between machines; needed as soon as there are two\n"
      "#   rack: {bandwidth: 100 Gbit/s, latency: 20 us}\n"
      "#   site: {bandwidth: 25 Gbit/s, latency: 50 us}\n"
      "#   region: {bandwidth: 1 Gbit/s, latency: 10 ms}   # between sites\n";
  if (!facts.gpus.empty() && own.empty()) return out;
  out += "kinds:\n";
  for (const auto& [kind, gpu] : own) {
    AppendGpuKind(kind, gpu, &out);
  }
  if (facts.gpus.empty()) AppendCpuKind(facts, &out);
  return out;
}

std::string DescribeStarted(const MachineFacts& facts, const std::vector<DeviceChoice>& devices) {
  std::string groups;
  std::map<std::string, GpuFacts> own;  // GPUs that the catalogue has not
  int cpus = 0, emulated = 0;
  for (const DeviceChoice& device : devices) {
    const GpuFacts gpu = FactsOf(device.gpu);
    const bool on_cores = !IsCardName(device.device);
    if (on_cores) ++(device.device == kEmulatedGpuDevice ? emulated : cpus);
    if (!on_cores && gpu.kind == gpu.model) Lower(gpu, &own[gpu.kind]);
    groups += StrCat("  - {kind: ", Quoted(on_cores ? device.device : gpu.kind), "}\n");
  }
  std::string out =
      "# The devices that `tessera up` started, to plan for. Estimates are marked; workers "
      "measure\n"
      "# their memory and its rate themselves.\n"
      "machines:\n"
      "- name: local\n"
      "  devices:\n";
  out += groups;
  const bool known = own.empty() && cpus + emulated == 0;
  if (devices.size() > 1) AppendInside(known, &out);
  if (known) return out;
  out += "kinds:\n";
  for (const auto& [kind, gpu] : own) AppendGpuKind(kind, gpu, &out);
  MachineFacts share = facts;
  share.cores = std::max(1, facts.cores / std::max(1, cpus + emulated));
  if (cpus > 0) AppendCpuKind(share, &out);
  if (emulated > 0) AppendEmulatedKind(&out);
  return out;
}

}  // namespace tessera::deploy

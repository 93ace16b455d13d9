#include "coordinator/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

namespace tessera::coordinator {
namespace {

using prometheus::MetricType;

void Add(const char* name, const char* help, MetricType type, double value,
         std::vector<prometheus::MetricFamily>& families) {
  prometheus::MetricFamily& family = families.emplace_back();
  family.name = name;
  family.help = help;
  family.type = type;
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  metric.counter.value = value;
  metric.gauge.value = value;
}

// Fields of /proc/self/stat from the third on (man 5 proc), which begin behind the name in
// brackets.
std::vector<std::string> StatFields() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  return {std::istream_iterator<std::string>(rest), std::istream_iterator<std::string>()};
}

// Finer than the ticks of /proc/self/stat.
double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Seconds from 1970 to the machine's start; 0: unknown.
double BootSeconds() {
  std::ifstream file("/proc/stat");
  std::string key;
  double value = 0;
  while (file >> key) {
    if (key == "btime" && file >> value) return value;
    file.ignore(1 << 20, '\n');
  }
  return 0;
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  std::vector<prometheus::MetricFamily> families;
  Add("process_cpu_seconds_total", "User and system CPU time, seconds.", MetricType::Counter,
      CpuSeconds(), families);
  constexpr size_t kStartTicks = 19, kVirtual = 20, kPages = 21;
  const std::vector<std::string> stat = StatFields();
  if (stat.size() > kPages) {
    const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    Add("process_resident_memory_bytes", "Resident memory.", MetricType::Gauge,
        std::stod(stat[kPages]) * static_cast<double>(sysconf(_SC_PAGESIZE)), families);
    Add("process_virtual_memory_bytes", "Virtual memory.", MetricType::Gauge,
        std::stod(stat[kVirtual]), families);
    if (const double boot = BootSeconds(); boot > 0) {
      Add("process_start_time_seconds", "Start time of the process, seconds since the Unix epoch.",
          MetricType::Gauge, boot + std::stod(stat[kStartTicks]) / ticks, families);
    }
  }
  std::error_code error;
  const std::filesystem::directory_iterator open_files("/proc/self/fd", error);
  if (!error) {
    // One of them is the folder that is being read.
    const auto count = std::distance(begin(open_files), end(open_files)) - 1;
    Add("process_open_fds", "Open files and sockets.", MetricType::Gauge,
        static_cast<double>(count), families);
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    Add("process_max_fds", "Max open files and sockets.", MetricType::Gauge,
        static_cast<double>(limit.rlim_cur), families);
  }
  return families;
}

}  // namespace tessera::coordinator

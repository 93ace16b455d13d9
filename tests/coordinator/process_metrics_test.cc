#include "coordinator/process_metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <ctime>
#include <map>
#include <string>

namespace tessera::coordinator {
namespace {

std::map<std::string, double> Collected() {
  std::map<std::string, double> values;
  for (const prometheus::MetricFamily& family : ProcessMetrics().Collect())
    values[family.name] = family.metric.at(0).gauge.value;
  return values;
}

}  // namespace

TEST_CASE("a process describes itself") {
  const auto before = Collected();
  REQUIRE(before.size() == 6);
  CHECK(before.at("process_resident_memory_bytes") > 1 << 20);
  CHECK(before.at("process_virtual_memory_bytes") >= before.at("process_resident_memory_bytes"));
  CHECK(before.at("process_max_fds") >= before.at("process_open_fds"));
  const double age = static_cast<double>(time(nullptr)) - before.at("process_start_time_seconds");
  CHECK(age >= -2);
  CHECK(age < 3600);
  const int file = open("/dev/null", O_RDONLY);
  REQUIRE(file >= 0);
  CHECK(Collected().at("process_open_fds") == before.at("process_open_fds") + 1);
  close(file);
  const clock_t busy = clock() + CLOCKS_PER_SEC / 10;
  while (clock() < busy) {
  }
  const double used = Collected().at("process_cpu_seconds_total");
  CHECK(used >= before.at("process_cpu_seconds_total") + 0.05);
}

}  // namespace tessera::coordinator

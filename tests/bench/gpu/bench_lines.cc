#include "tests/bench/gpu/bench_lines.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/strings/str_format.h"
#include "third_party/absl/str_cat.h"

namespace tessera::bench {
namespace {

struct TimeBar {
  std::string_view name;
  double seconds;
};

// Steps are those of an 8B Llama with 1k of context, and of a 30B-A3B's layers.
constexpr std::array<TimeBar, 8> kH100Bars = {{{"decode step, batch 1", 5.6e-3},
                                               {"decode step, int4, batch 1", 2.5e-3},
                                               {"decode step, int4, batch 16", 3.7e-3},
                                               {"decode step, int4, batch 64", 7.0e-3},
                                               {"decode step, int8, batch 64", 7.7e-3},
                                               {"decode step, mixture, batch 1", 4.5e-3},
                                               {"route, 8 of 128, rows 2048", 30e-6},
                                               {"sum of 2 ranks, 16 KiB", 12e-6}}};

constexpr std::string_view kH100 = "H100-SXM";

}  // namespace

double H100Seconds(std::string_view name) {
  for (const TimeBar& bar : kH100Bars) {
    if (bar.name == name) return bar.seconds;
  }
  return 0;
}

void BenchLines::Add(Line line) {
  const std::string detail = line.detail.empty() ? "" : StrCat(" (", line.detail, ")");
  std::printf("%s: %.3f%s\n", line.name.c_str(), line.ratio, detail.c_str());
  std::fflush(stdout);
  lines_.push_back(std::move(line));
}

void BenchLines::AddTime(const std::string& name, double seconds) {
  const double most = H100Seconds(name);
  if (most == 0) return;
  Add({StrCat(name, ", in time"), most / seconds, kind_ == kH100 ? 1.0 : 0, 1,
       absl::StrFormat("%.1f us; an H100 may take %.1f us", seconds * 1e6, most * 1e6)});
}

bool BenchLines::Report(nlohmann::json about, const std::string& json_file) const {
  bool met = true;
  nlohmann::json lines = nlohmann::json::array();
  std::printf("\n%-46s %7s %6s %6s\n", "", "ratio", "bar", "goal");
  for (const Line& line : lines_) {
    met = met && !Missed(line);
    const char* const held = !has_bars_ || line.bar == 0 ? "" : Missed(line) ? "MISSED" : "met";
    std::printf("%-46s %7.3f %6.2f %6.2f %-6s %s\n", line.name.c_str(), line.ratio, line.bar,
                line.goal, held, line.detail.c_str());
    lines.push_back({{"name", line.name},
                     {"ratio", line.ratio},
                     {"bar", line.bar},
                     {"goal", line.goal},
                     {"met", !Missed(line)},
                     {"detail", line.detail}});
  }
  if (!has_bars_) std::printf("On the emulator these ratios say nothing of a GPU: no bar holds.\n");
  about["lines"] = std::move(lines);
  if (!json_file.empty()) std::ofstream(json_file) << about.dump(2) << "\n";
  return met;
}

}  // namespace tessera::bench

// How well the calibrated cost model predicts layer times that it was not fitted to. Bars: 7 % mean
// error between odd and even points, both ways; 12 % fitted on LLaMA-30B and tested on Llama-2-70B;
// 15 % for every card kind.
#include "tests/scheduler/cost/calibration.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/scheduler/cost/shapes.h"

namespace tessera::scheduler {
namespace {

constexpr double kSplitBar = 0.07;
constexpr double kModelBar = 0.12;
constexpr double kKindBar = 0.15;

using Observations = std::vector<LayerObservation>;

CalibrationInput Input() {
  CalibrationInput input;
  input.models["LLaMA-30B"] = tests::Llama30B();
  input.models["Llama-2-70B"] = tests::Llama2_70B();
  input.devices["A100-40"] = tests::Device("A100-40", 40, 312, 1555);
  input.devices["V100-16"] = tests::Device("V100-16", 16, 125, 900);
  input.devices["L4"] = tests::Device("L4", 24, 121, 300);
  input.devices["T4"] = tests::Device("T4", 16, 65, 320);
  return input;
}

template <typename Predicate>
Observations Where(const Observations& all, Predicate predicate) {
  Observations some;
  for (size_t i = 0; i < all.size(); ++i) {
    if (predicate(i, all[i])) some.push_back(all[i]);
  }
  return some;
}

std::string Label(const LayerObservation& o) {
  std::string devices = o.devices > 1 ? std::to_string(o.devices) + "x" : "";
  return devices + o.device;
}

void PrintWorst(const Calibration& fit, const CalibrationInput& input, Observations points) {
  const auto error = [&](const LayerObservation& o) {
    return PredictSeconds(fit, input, o) / o.seconds - 1;
  };
  std::sort(points.begin(), points.end(),
            [&](const auto& a, const auto& b) { return std::abs(error(a)) > std::abs(error(b)); });
  for (size_t i = 0; i < std::min<size_t>(5, points.size()); ++i) {
    const LayerObservation& o = points[i];
    std::printf("    %-11s %-7s %-7s %5g: %7.2f ms measured, %7.2f predicted, %+.0f %%\n",
                o.model.c_str(), Label(o).c_str(), o.decode ? "decode" : "prefill", o.size,
                o.seconds * 1e3, PredictSeconds(fit, input, o) * 1e3, 100 * error(o));
  }
}

// Fits on one part, tests on the other; false if a bar is missed.
bool Report(const char* name, const Observations& fitted, const Observations& tested, double bar) {
  const CalibrationInput input = Input();
  const absl::StatusOr<Calibration> fit = Fit(fitted, input);
  if (!fit.ok()) {
    std::printf("%s: %s\n", name, std::string(fit.status().message()).c_str());
    return false;
  }
  const double error = MeanAbsoluteError(*fit, input, tested);
  bool passed = error <= bar;
  std::printf("%s: mean absolute error %.2f %% (bar %.0f %%), decode context %.0f tokens\n", name,
              100 * error, 100 * bar, fit->decode_context_tokens);
  for (const auto& [kind, device] : fit->devices) {
    std::vector<std::string> labels;
    for (const LayerObservation& o : tested) {
      if (o.device == kind && std::find(labels.begin(), labels.end(), Label(o)) == labels.end()) {
        labels.push_back(Label(o));
      }
    }
    for (const std::string& label : labels) {
      const Observations part =
          Where(tested, [&](size_t, const auto& o) { return Label(o) == label; });
      const double part_error = MeanAbsoluteError(*fit, input, part);
      passed = passed && part_error <= kKindBar;
      std::printf(
          "  %-8s %5.2f %% of %2zu points; e_c %.3f, e_m %.3f, overhead %3.0f us per layer\n",
          label.c_str(), 100 * part_error, part.size(), device.compute_efficiency,
          device.memory_efficiency, device.layer_overhead_seconds * 1e6);
    }
  }
  for (const auto& [key, link] : fit->links) {
    std::printf("  link of %s: %.1f us per round, %.2f GB/s\n", key.c_str(),
                link.latency_seconds * 1e6, link.bytes_per_second / 1e9);
  }
  std::printf("  worst points:\n");
  PrintWorst(*fit, input, tested);
  return passed;
}

int Main() {
  const char* runfiles = std::getenv("RUNFILES_DIR");
  const std::filesystem::path root =
      runfiles != nullptr ? std::filesystem::path(runfiles) / "tessera" : ".";
  std::stringstream text;
  text << std::ifstream(root / "deploy/devices/layer_times.csv").rdbuf();
  const absl::StatusOr<Observations> all =
      ParseLayerTimes(text.str(), "deploy/devices/layer_times.csv");
  if (!all.ok() || all->empty()) {
    std::printf("no layer times: %s\n", std::string(all.status().message()).c_str());
    return 1;
  }
  const Observations odd = Where(*all, [](size_t i, const auto&) { return i % 2 == 0; });
  const Observations even = Where(*all, [](size_t i, const auto&) { return i % 2 == 1; });
  const Observations small =
      Where(*all, [](size_t, const auto& o) { return o.model == "LLaMA-30B"; });
  const Observations large =
      Where(*all, [](size_t, const auto& o) { return o.model == "Llama-2-70B"; });
  bool passed = Report("fitted on odd points, tested on even", odd, even, kSplitBar);
  passed = Report("fitted on even points, tested on odd", even, odd, kSplitBar) && passed;
  passed = Report("fitted on LLaMA-30B, tested on Llama-2-70B", small, large, kModelBar) && passed;
  passed = Report("fitted on all, all points", *all, *all, kSplitBar) && passed;
  std::printf("%s\n", passed ? "all bars met" : "A BAR WAS MISSED");
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace tessera::scheduler

int main() { return tessera::scheduler::Main(); }

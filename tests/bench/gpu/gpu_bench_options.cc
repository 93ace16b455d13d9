#include "tests/bench/gpu/gpu_bench_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "third_party/absl/str_cat.h"
#include "third_party/cli11/flags.h"

namespace tessera::bench {
namespace {

constexpr std::array<std::string_view, 13> kParts = {
    "attention", "linear", "route",   "experts", "mixture", "sample", "sums",
    "int4",      "int8",   "predict", "step",    "ranks",   "served"};

}  // namespace

int GpuIndex(const std::string& device) {
  constexpr std::string_view kPrefix = "cuda:";
  if (!device.starts_with(kPrefix)) return -1;
  int index = -1;
  const char* const end = device.data() + device.size();
  const auto [stopped, error] = std::from_chars(device.data() + kPrefix.size(), end, index);
  return error == std::errc() && stopped == end ? index : -1;
}

absl::StatusOr<GpuBenchOptions> ParseGpuBenchOptions(int argc, char** argv, bool* printed) {
  GpuBenchOptions options;
  Program program("Measures a GPU as Tessera uses it, as ratios to what the GPU gives.",
                  "gpu_bench");
  program.AddOption("--device", options.device, "cuda:0, another GPU, or cuda-emulated")
      .ShowDefault();
  program.AddOption("--other-device", options.other_device,
                    "Of the second of two ranks, as cuda:1; default: the same GPU");
  program.AddOption("--shape", options.shape, "Of the model: 8b, 1b or tiny")
      .OneOf({"8b", "1b", "tiny"});
  program.AddOption("--folder", options.folder,
                    "Keeps the models' files there and takes those that are there; default: in "
                    "/dev/shm, as long as it runs");
  program.AddOption("--tokenizer", options.tokenizer, "Folder of a Llama whose tokenizer it gets")
      .ShowDefault();
  program.AddOption("--bin-dir", options.programs, "Folder of tessera and the daemon's programs");
  program.AddOption(
      "--only", options.only,
      "attention, linear, route, experts, mixture, sample, sums, int4, int8, step (in bfloat16), "
      "predict (beside these steps, as the planner has them), ranks, served; all by default");
  program.AddSwitch("--measure-only", options.measure_only, "Exits with 0 under a bar, too");
  program.AddOption("--batch", options.batch, "Of the step; default: 1, 16 and 64").Range(1, 1024);
  program.AddOption("--steps", options.steps, "That are timed for each batch; default: 30")
      .Range(1, 10000);
  program.AddOption("--tuning-folder", options.tuning_folder,
                    "As a worker's: where choices of kernels are kept; none: nothing is tuned");
  program.AddOption("--json", options.json, "Also writes the figures there");
  const auto outcome = program.Parse(argc, argv);
  if (!outcome.ok()) return outcome.status();
  *printed = *outcome == ParseOutcome::kPrinted;
  if (*printed) return options;
  for (const auto& [flag, device] :
       {std::pair("--device", options.device), std::pair("--other-device", options.other_device)}) {
    if (device.empty() || device == kEmulated || GpuIndex(device) >= 0) continue;
    return absl::InvalidArgumentError(
        StrCat(flag, " ", device, ": cuda:0 and so on, or ", kEmulated));
  }
  for (const std::string& part : options.only) {
    if (std::find(kParts.begin(), kParts.end(), part) != kParts.end()) continue;
    return absl::InvalidArgumentError(StrCat("--only ", part,
                                             ": there are attention, linear, route, experts, "
                                             "mixture, sample, sums, int4, int8, predict, step, "
                                             "ranks and served"));
  }
  return options;
}

}  // namespace tessera::bench

// How fast a GPU is served, as ratios to what the same GPU gives in the same run: its copy rate,
// its rate of products.
//
//   tests/bench/run gpu_bench [--device cuda:0] [--only NAME ...] [--json FILE]
//   bin/gpu_bench             from the archive of //deploy:gpu_bundle
//
// Measured are: attention of decoding (batch 8, 4k tokens of context) and of a prompt of 4k;
// without bars few rows behind a long context, also of latents, products with weights of an 8B
// Llama's shapes in bfloat16, int8 and int4, routing of rows to 8 of 128 experts and these experts
// as Qwen3-30B-A3B has them, in bfloat16, int4 and MXFP4, sampling, and sums of two ranks that meet
// in pinned memory, both on this GPU; the decode step of an 8B
// Llama with random weights and 1k of context at batch 1, 16 and 64, in bfloat16, int8 and int4,
// each beside what the planner predicts from the rates that a worker measures at its first start;
// and what the whole daemon serves over HTTP, beside the bfloat16 step. Each has a bar and a goal;
// under a bar the exit code is 1. --device cuda-emulated runs the same on a tiny model anywhere,
// without bars: it shows that the measurements work.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/cuda/device/cuda_device.h"
#include "proto/build_version.h"
#include "tests/bench/gpu/bench_sizes.h"
#include "tests/bench/gpu/copy_rate.h"
#include "tests/bench/gpu/op_rates.h"
#include "tests/bench/gpu/predicted_steps.h"
#include "tests/bench/gpu/random_checkpoint.h"
#include "tests/bench/gpu/rank_sums.h"
#include "tests/bench/gpu/served_rates.h"
#include "tests/bench/model_steps.h"
#include "third_party/absl/str_cat.h"
#include "third_party/cli11/flags.h"
#include "worker/devices/cuda/cuda_devices.h"

namespace tessera::bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEmulated = "cuda-emulated";
constexpr std::array<std::string_view, 11> kParts = {"attention", "linear", "route", "experts",
                                                     "sample",    "sums",   "int4",  "int8",
                                                     "predict",   "step",   "served"};
constexpr int64_t kInt4Group = 128;
constexpr kernels::ProbeOptions kEmulatedProbe = {.buffer_bytes = int64_t{1} << 20,
                                                  .reads_weights = true,
                                                  .matrix_size = 64,
                                                  .rows = 8,
                                                  .runs = 1};

struct Line {
  std::string name;
  double ratio = 0;
  double bar = 0, goal = 0;
  std::string detail;
};

struct Options {
  std::string device = "cuda:0";
  std::string shape;     // empty: 8b, tiny on the emulator
  std::string folder;    // of the model; empty: a new one in memory
  std::string programs;  // of the daemon; empty: beside this one
  std::string tokenizer = "deploy/demo_model/tessera-demo";
  std::vector<std::string> only;
  int32_t batch = 0;  // of the step; 0: those of the sizes
  int32_t steps = 0;  // 0: that of the sizes
  std::string json;
  std::string tuning_folder;  // as a worker's
  bool measure_only = false;
};

// -1: it is not "cuda:" and a number.
int GpuIndex(const std::string& device) {
  constexpr std::string_view kPrefix = "cuda:";
  if (!device.starts_with(kPrefix)) return -1;
  int index = -1;
  const char* const end = device.data() + device.size();
  const auto [stopped, error] = std::from_chars(device.data() + kPrefix.size(), end, index);
  return error == std::errc() && stopped == end ? index : -1;
}

class GpuBench {
 public:
  explicit GpuBench(Options options)
      : options_(std::move(options)),
        emulated_(options_.device == kEmulated),
        sizes_(emulated_ ? kEmulatedSizes : kGpuSizes) {
    if (options_.shape.empty()) options_.shape = emulated_ ? "tiny" : "8b";
    if (options_.batch > 0) sizes_.batches = {options_.batch};
    if (options_.steps > 0) sizes_.steps = options_.steps;
  }

  absl::Status Run() {
    if (absl::Status status = Ceilings(); !status.ok()) return status;
    absl::Status status;
    if (Wanted("attention")) status = Attention();
    if (status.ok() && Wanted("linear")) status = Linears();
    if (status.ok() && Wanted("route")) status = Route();
    if (status.ok() && Wanted("experts")) status = Experts();
    if (status.ok() && Wanted("sample")) status = Sample();
    if (status.ok() && Wanted("sums")) status = Sums();
    if (status.ok() && Wanted("predict")) status = MeasureRates();
    if (status.ok() && Wanted("int4")) status = WriteModel(Weights::kInt4);
    if (status.ok() && Wanted("int4")) status = Steps("int4", v1::DATA_TYPE_UNSPECIFIED);
    if (status.ok() && (Wanted("int8") || Wanted("step") || Wanted("served")))
      status = WriteModel(Weights::kBFloat16);
    if (status.ok() && Wanted("int8")) status = Steps("int8", v1::DATA_TYPE_INT8);
    if (status.ok() && (Wanted("step") || Wanted("served")))
      status = Steps("", v1::DATA_TYPE_UNSPECIFIED);
    if (status.ok() && Wanted("served")) status = Served();
    return status;
  }

  // Removes the models that were made.
  void CleanUp() const {
    if (!options_.folder.empty() || root_.empty()) return;
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  // True where no bar is missed.
  bool Report() const {
    bool met = true;
    nlohmann::json lines = nlohmann::json::array();
    std::printf("\n%-40s %7s %6s %6s\n", "", "ratio", "bar", "goal");
    for (const Line& line : lines_) {
      const bool missed = !emulated_ && line.ratio < line.bar;
      met = met && !missed;
      std::printf("%-40s %7.3f %6.2f %6.2f  %s%s\n", line.name.c_str(), line.ratio, line.bar,
                  line.goal, line.detail.c_str(), missed ? "  MISSED" : "");
      lines.push_back({{"name", line.name},
                       {"ratio", line.ratio},
                       {"bar", line.bar},
                       {"goal", line.goal},
                       {"detail", line.detail}});
    }
    if (emulated_)
      std::printf("On the emulator these ratios say nothing of a GPU: no bar holds.\n");
    if (!options_.json.empty()) {
      std::ofstream(options_.json) << nlohmann::json{{"device", options_.device},
                                                     {"shape", options_.shape},
                                                     {"copy_bytes_per_second", copy_rate_},
                                                     {"flops_per_second", multiply_rate_},
                                                     {"lines", lines}}
                                          .dump(2)
                                   << "\n";
    }
    return met;
  }

 private:
  bool Wanted(const std::string& name) const {
    return options_.only.empty() ||
           std::find(options_.only.begin(), options_.only.end(), name) != options_.only.end();
  }

  // Each part opens the device and closes it, so that the daemon of the last part has all memory.
  absl::StatusOr<std::unique_ptr<kernels::Device>> Open() {
    if (emulated_) return kernels::cuda::emulated::CreateCudaDevice({.memory_bytes = 1 << 29});
    auto opened = worker::kCudaDevices.open({.name = options_.device,
                                             .tuning_folder = options_.tuning_folder,
                                             .build_version = std::string(BuildVersion())},
                                            {});
    if (!opened.ok()) return opened.status();
    path_ = opened->info.kernel_path();
    kind_ = opened->info.kind();
    return std::move(opened->device);
  }

  absl::Status Ceilings() {
    {
      auto device = Open();
      if (!device.ok()) return device.status();
      const auto multiply = MultiplyRate(**device, sizes_.matrix);
      if (!multiply.ok()) return multiply.status();
      multiply_rate_ = *multiply;
    }
    absl::StatusOr<double> copy = CopyRate();
    if (!copy.ok()) return copy.status();
    copy_rate_ = *copy;
    std::printf(
        "%s: copies at %.1f GB/s (read and written), products of %ld x %ld at %.1f TFLOP/s (%s)\n",
        options_.device.c_str(), copy_rate_ / 1e9, static_cast<long>(sizes_.matrix),
        static_cast<long>(sizes_.matrix), multiply_rate_ / 1e12, path_.c_str());
    std::fflush(stdout);
    return absl::OkStatus();
  }

  absl::StatusOr<double> CopyRate() const {
    if (emulated_) return kernels::cuda::emulated::CopyRate(0, sizes_.copy_bytes);
#ifdef TESSERA_WITH_CUDA
    return kernels::cuda::gpu::CopyRate(GpuIndex(options_.device), sizes_.copy_bytes);
#else
    return absl::UnimplementedError("gpu_bench was built without a CUDA toolkit");
#endif
  }

  absl::Status Attention() {
    auto device = Open();
    if (!device.ok()) return device.status();
    const int64_t context = sizes_.attention_context;
    const auto decode = DecodeAttentionRate(**device, sizes_.heads, sizes_.decode_batch, context);
    if (!decode.ok()) return decode.status();
    Add({"decode attention", *decode / copy_rate_, 0.70, 0.85,
         StrCat("batch ", sizes_.decode_batch, ", context ", context, "; of the copy rate")});
    const auto prefill = PrefillAttentionRate(**device, sizes_.heads, 1, context);
    if (!prefill.ok()) return prefill.status();
    Add({"prefill attention", *prefill / multiply_rate_, 0.35, 0.60,
         StrCat(context, " tokens, causal; of the rate of products")});
    for (const auto& [batch, tokens] : sizes_.more_decodes) {
      const auto rate = DecodeAttentionRate(**device, sizes_.heads, batch, tokens);
      if (!rate.ok()) return rate.status();
      Add({StrCat("decode attention ", batch, " x ", tokens), *rate / copy_rate_, 0, 0, ""});
    }
    for (const auto& [prompts, tokens] : sizes_.more_prompts) {
      const auto rate = PrefillAttentionRate(**device, sizes_.heads, prompts, tokens);
      if (!rate.ok()) return rate.status();
      Add({StrCat("prefill attention ", prompts, " x ", tokens), *rate / multiply_rate_, 0, 0, ""});
    }
    absl::Status status = LastRows(**device, "attention", sizes_.heads, sizes_.long_context, 0.67);
    status.Update(
        LastRows(**device, "attention to latents", sizes_.latents, sizes_.latent_context, 0));
    if (!status.ok()) return status;
    HeadShape half = sizes_.heads;
    half.head_dim = 64;
    const auto narrow = PrefillAttentionRate(**device, half, 1, context);
    if (!narrow.ok()) return narrow.status();
    Add({"prefill attention, D 64", *narrow / multiply_rate_, 0, 0, StrCat(context, " tokens")});
    return absl::OkStatus();
  }

  // Both ranks on this GPU.
  absl::Status Sums() {
    auto one = Open(), other = Open();
    for (const auto* device : {&one, &other}) {
      if (!device->ok()) return device->status();
    }
    for (const auto& [bytes, goal] : sizes_.sums) {
      const auto seconds = RankSumSeconds(**one, **other, bytes);
      if (!seconds.ok()) return seconds.status();
      Add({StrCat("sum of 2 ranks, ", bytes >> 10, " KiB"), goal / *seconds, 0, goal > 0 ? 1.0 : 0,
           absl::StrFormat("%.1f us%s", *seconds * 1e6,
                           goal > 0 ? absl::StrFormat("; beside %.0f us", goal * 1e6) : "")});
    }
    return absl::OkStatus();
  }

  // Drafts that are verified, the rest of a prompt: beside one row.
  absl::Status LastRows(kernels::Device& device, const char* name, const HeadShape& heads,
                        int64_t context, double goal) {
    double of_one = 0;
    for (const int64_t rows : sizes_.last_rows) {
      const auto seconds = RowsAttentionSeconds(device, heads, rows, context);
      if (!seconds.ok()) return seconds.status();
      if (of_one == 0) of_one = *seconds;
      Add({StrCat(name, ", last ", rows, " of ", context), of_one / *seconds, 0,
           rows <= kernels::kFewSequenceRows ? goal : 0,
           absl::StrFormat("%.1f us; beside one row", *seconds * 1e6)});
    }
    return absl::OkStatus();
  }

  // Lines "linear, NAME, DEPTHxCOLUMNS, rows N".
  absl::Status Linears() {
    auto device = Open();
    if (!device.ok()) return device.status();
    for (const kernels::DType weights :
         {kernels::DType::kBF16, kernels::DType::kI8, kernels::DType::kI4}) {
      for (const LinearShape& shape : sizes_.linears) {
        kernels::LinearSpec spec = {
            .in_features = shape.depth, .out_features = shape.columns, .weight_dtype = weights};
        if (weights == kernels::DType::kI4) spec.group_size = kInt4Group;
        const auto seconds = LinearSeconds(**device, spec, sizes_.linear_rows);
        if (!seconds.ok()) return seconds.status();
        for (size_t i = 0; i < seconds->size(); ++i) AddLinear(**device, spec, i, (*seconds)[i]);
      }
    }
    return absl::OkStatus();
  }

  // Of the time that its bytes or its products need, whichever is longer.
  void AddLinear(kernels::Device& device, const kernels::LinearSpec& spec, size_t index,
                 double seconds) {
    const auto rows = static_cast<double>(sizes_.linear_rows[index]);
    const auto depth = static_cast<double>(spec.in_features);
    const auto columns = static_cast<double>(spec.out_features);
    const double bytes = static_cast<double>(device.ops().PackedWeightBytes(spec)) +
                         rows * (depth + columns) * sizeof(float);
    const double of_bytes = bytes / copy_rate_;
    const double of_products = 2 * rows * depth * columns / multiply_rate_;
    const bool memory = of_bytes > of_products;
    Add({StrCat("linear, ", kernels::Name(spec.weight_dtype), ", ", spec.in_features, "x",
                spec.out_features, ", rows ", sizes_.linear_rows[index]),
         std::max(of_bytes, of_products) / seconds, 0, memory ? 0.80 : 0.50,
         absl::StrFormat("%.1f us; of the time of its %s", seconds * 1e6,
                         memory ? "bytes" : "products")});
  }

  // No bar: what a layer of experts costs beside their products.
  absl::Status Route() {
    auto device = Open();
    if (!device.ok()) return device.status();
    for (const auto& [rows, goal_seconds] : sizes_.routed) {
      const auto seconds = RouteSeconds(**device, sizes_.router, rows);
      if (!seconds.ok()) return seconds.status();
      Add({StrCat("route, ", sizes_.router.used, " of ", sizes_.router.experts, ", rows ", rows),
           goal_seconds / *seconds, 0, 1,
           absl::StrFormat("%.1f us; beside %.0f us", *seconds * 1e6, goal_seconds * 1e6)});
    }
    return absl::OkStatus();
  }

  // Ratios to the time of the bytes of weights that are read: as many experts as rows may choose.
  absl::Status Experts() {
    auto device = Open();
    if (!device.ok()) return device.status();
    const ExpertShape& shape = sizes_.experts;
    const std::array<std::pair<const char*, kernels::DType>, 3> kinds = {
        {{"bfloat16", kernels::DType::kBF16},
         {"int4", kernels::DType::kI4},
         {"MXFP4", kernels::DType::kI8}}};
    for (const auto& [name, weights] : kinds) {
      const double bits = weights == kernels::DType::kBF16 ? 16
                          : weights == kernels::DType::kI4 ? 4.25
                                                           : 5;
      for (const int64_t rows : sizes_.expert_rows) {
        const auto seconds = ExpertSeconds(**device, shape, weights, rows);
        if (!seconds.ok()) return seconds.status();
        const int64_t read = std::min(rows * shape.router.used, shape.router.experts);
        const double bytes = static_cast<double>(read * 3 * shape.hidden * shape.ffn) * bits / 8;
        Add({StrCat("experts, ", name, ", ", shape.router.used, " of ", shape.router.experts,
                    ", rows ", rows),
             bytes / copy_rate_ / *seconds, 0, 0,
             absl::StrFormat("%.1f us a layer; of the time of its bytes", *seconds * 1e6)});
      }
    }
    return absl::OkStatus();
  }

  // No bar: what a token costs beside the model's step.
  absl::Status Sample() {
    auto device = Open();
    if (!device.ok()) return device.status();
    const std::array<std::pair<const char*, SampleCase>, 5> cases = {
        {{"greedy", {}},
         {"temperature 1", {.temperature = 1}},
         {"top_p 0.9", {.temperature = 1, .top_p = 0.9f}},
         {"top_k 40, top_p 0.9", {.temperature = 1, .top_p = 0.9f, .top_k = 40}},
         {"flat, top_p 0.9", {.temperature = 1, .top_p = 0.9f, .flat = true}}}};
    for (const int64_t rows : {sizes_.batches.front(), sizes_.batches.back()}) {
      for (auto [name, sample] : cases) {
        sample.rows = rows;
        sample.vocabulary = sizes_.vocabulary;
        const auto seconds = SampleSeconds(**device, sample);
        if (!seconds.ok()) return seconds.status();
        const auto bytes = static_cast<double>(rows * sizes_.vocabulary * 4);
        Add({StrCat("sample, rows ", rows, ", ", name), bytes / copy_rate_ / *seconds, 0, 0,
             absl::StrFormat("%.1f us; of the time of its logits", *seconds * 1e6)});
      }
    }
    return absl::OkStatus();
  }

  // To folder_. One model is there at a time where it lies in memory.
  absl::Status WriteModel(Weights weights) {
    CleanUp();
    if (options_.folder.empty()) {
      const fs::path memory = "/dev/shm";
      std::error_code failed;
      root_ = fs::exists(memory, failed) ? memory : fs::temp_directory_path(failed);
      root_ /= StrCat("gpu_bench-", getpid());
    } else {
      root_ = options_.folder;
    }
    folder_ = root_ / (weights == Weights::kInt4 ? "int4" : "bfloat16");
    if (fs::exists(folder_ / "model.safetensors")) return absl::OkStatus();
    const auto shape = NamedShape(options_.shape);
    if (!shape.ok()) return shape.status();
    return WriteRandomCheckpoint(*shape, weights, options_.tokenizer, folder_);
  }

  // Lines "decode step, NAME, batch N".
  absl::Status Steps(const std::string& name, v1::DataType weights) {
    auto device = Open();
    if (!device.ok()) return device.status();
    const int64_t most = sizes_.batches.back();
    const auto steps =
        ModelSteps::Load({.folder = folder_.string(),
                          .weights = weights,
                          .context_tokens = most * (sizes_.context + ModelSteps::kBlockTokens),
                          .max_batch = most},
                         **device);
    if (!steps.ok()) return steps.status();
    for (const int64_t batch : sizes_.batches) {
      step_seconds_ = StepSeconds(**steps, batch);
      const double least =
          static_cast<double>((*steps)->BytesRead(batch, sizes_.context)) / copy_rate_;
      if (auto status = Predict(**steps, name, weights, batch); !status.ok()) return status;
      Add({StrCat("decode step, ", name, name.empty() ? "" : ", ", "batch ", batch),
           least / step_seconds_, 0.65, 0.80,
           StrCat(options_.shape, ", context ", sizes_.context, ": ", Milliseconds(step_seconds_),
                  "; of the time of its bytes")});
    }
    return absl::OkStatus();
  }

  absl::Status MeasureRates() {
    auto device = Open();
    if (!device.ok()) return device.status();
    const auto measured =
        MeasureAsWorker(**device, emulated_ ? kEmulatedProbe : kernels::kGpuProbe);
    if (measured.ok()) profile_ = *measured;
    return measured.status();
  }

  // The step that was measured beside the planner's, where rates were.
  absl::Status Predict(const ModelSteps& steps, const std::string& name, v1::DataType weights,
                       int64_t batch) {
    if (profile_.products().empty()) return absl::OkStatus();
    const auto predicted =
        PredictedStepSeconds(kind_, profile_, steps.shape(), weights, batch, sizes_.context);
    if (!predicted.ok()) return predicted.status();
    const double ratio = *predicted / step_seconds_;
    Add({StrCat("predicted step, ", name, name.empty() ? "" : ", ", "batch ", batch),
         std::min(ratio, 1 / ratio), 0.90, 0.95,
         StrCat("predicted ", Milliseconds(*predicted), ", measured ",
                Milliseconds(step_seconds_))});
    return absl::OkStatus();
  }

  // The median; the first steps are captured as graphs.
  double StepSeconds(ModelSteps& steps, int64_t batch) const {
    for (int i = 0; i < 3; ++i) steps.Decode(batch, sizes_.context);
    std::vector<double> seconds;
    for (int i = 0; i < sizes_.steps; ++i) seconds.push_back(steps.Decode(batch, sizes_.context));
    std::nth_element(seconds.begin(), seconds.begin() + sizes_.steps / 2, seconds.end());
    return seconds[sizes_.steps / 2];
  }

  absl::Status Served() {
    const auto batch = static_cast<int>(sizes_.batches.back());
    const auto served = MeasureServed({.programs = Programs(),
                                       .model = folder_.string(),
                                       .device = options_.device,
                                       .logs = (folder_ / "logs").string(),
                                       .streams = batch,
                                       .prompt_tokens = sizes_.context,
                                       .output_tokens = sizes_.output_tokens});
    if (!served.ok()) return served.status();
    Add({"tokens/s over HTTP", served->tokens_per_second * step_seconds_ / batch, 0.85, 0.95,
         absl::StrFormat(
             "%d streams: %.0f tokens/s, TTFT p50 %s, TPOT p50 %s; ready in %.1f s, weights at "
             "%.2f GB/s; of the step's rate",
             batch, served->tokens_per_second, Milliseconds(served->first_token_seconds),
             Milliseconds(served->seconds_per_token), served->ready_seconds,
             served->load_gb_per_second)});
    return absl::OkStatus();
  }

  // Beside this program in the archive, in deploy/ of a build.
  std::string Programs() const {
    if (!options_.programs.empty()) return options_.programs;
    std::error_code failed;
    const fs::path here = fs::read_symlink("/proc/self/exe", failed).parent_path();
    if (fs::exists(here / "tessera", failed)) return here.string();
    return (here.parent_path().parent_path() / "deploy").string();
  }

  void Add(Line line) {
    const std::string detail = line.detail.empty() ? "" : StrCat(" (", line.detail, ")");
    std::printf("%s: %.3f%s\n", line.name.c_str(), line.ratio, detail.c_str());
    std::fflush(stdout);
    lines_.push_back(std::move(line));
  }

  static std::string Milliseconds(double seconds) {
    return absl::StrFormat("%.2f ms", seconds * 1e3);
  }

  Options options_;
  const bool emulated_;
  Sizes sizes_;
  std::string path_ = "mma", kind_ = kEmulated;
  v1::MeasuredProfile profile_;  // of the device, as a worker measures it; empty: not measured
  double copy_rate_ = 0, multiply_rate_ = 0;
  fs::path root_, folder_;   // of all models, of the one that is measured
  double step_seconds_ = 0;  // of the model measured last, at its last batch
  std::vector<Line> lines_;
};

absl::StatusOr<bool> Main(int argc, char** argv, Options options) {
  Program program("Measures a GPU as Tessera uses it, as ratios to what the GPU gives.",
                  "gpu_bench");
  program.AddOption("--device", options.device, "cuda:0, another GPU, or cuda-emulated")
      .ShowDefault();
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
      "attention, linear, route, experts, sample, sums, int4, int8, step (in bfloat16), "
      "predict (beside these steps, as the planner has them), served; all by default");
  program.AddSwitch("--measure-only", options.measure_only, "Exits with 0 under a bar, too");
  program.AddOption("--batch", options.batch, "Of the step; default: 1, 16 and 64").Range(1, 1024);
  program.AddOption("--steps", options.steps, "That are timed for each batch; default: 30")
      .Range(1, 10000);
  program.AddOption("--tuning-folder", options.tuning_folder,
                    "As a worker's: where choices of kernels are kept; none: nothing is tuned");
  program.AddOption("--json", options.json, "Also writes the figures there");
  const auto outcome = program.Parse(argc, argv);
  if (!outcome.ok()) return outcome.status();
  if (*outcome == ParseOutcome::kPrinted) return true;
  if (options.device != kEmulated && GpuIndex(options.device) < 0) {
    return absl::InvalidArgumentError(
        StrCat("--device ", options.device, ": cuda:0 and so on, or ", kEmulated));
  }
  for (const std::string& part : options.only) {
    if (std::find(kParts.begin(), kParts.end(), part) != kParts.end()) continue;
    return absl::InvalidArgumentError(StrCat("--only ", part,
                                             ": there are attention, linear, route, experts, "
                                             "sample, sums, int4, int8, predict, step and "
                                             "served"));
  }
  GpuBench bench(options);
  const absl::Status status = bench.Run();
  const bool met = bench.Report();
  bench.CleanUp();
  if (!status.ok()) return status;
  return met || options.measure_only;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  const auto met = tessera::bench::Main(argc, argv, {});
  if (met.ok()) return *met ? 0 : 1;
  std::cerr << "gpu_bench: " << std::string(met.status().message()) << "\n";
  return 2;
}

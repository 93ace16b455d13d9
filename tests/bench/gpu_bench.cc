// How fast a GPU is served, as ratios to what the same GPU gives in the same run: its copy rate,
// its rate of products.
//
//   tests/bench/run gpu_bench [--device cuda:0] [--other-device cuda:1] [--only NAME ...] [--json
//   FILE] bin/gpu_bench             from the archive of //deploy:gpu_bundle
//
// Measured are: attention of decoding (batch 8, 4k tokens of context), of KV in 8 bits beside 16,
// of a prompt of 4k, of few rows behind a long context, also of latents; products with weights of
// an 8B Llama's shapes in bfloat16, int8 and int4; routing of rows to 8 of 128 experts and these
// experts as Qwen3-30B-A3B has them, in bfloat16, int4 and MXFP4, and the step of its layers;
// sampling; sums of two ranks that meet in pinned memory, and the step of an 8B Llama that they
// share, as one graph; the decode step of an 8B Llama with random weights and 1k of context at
// batch 1, 16 and 64, in bfloat16, int8 and int4, each beside what the planner predicts from the
// rates that a worker measures at its first start; and what the whole daemon serves over HTTP,
// beside the bfloat16 step. Both ranks are on this GPU, or the second on --other-device: then two
// GPUs are held to 0.85 of the sum of both. Lines have a bar and a goal, and on an H100 some of
// them a bar in time (tests/bench/gpu/bench_lines); under a bar the exit code is 1. --device
// cuda-emulated runs the same on tiny models anywhere, without bars: it shows that the measurements
// work.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/tuning_table.h"
#include "proto/build_version.h"
#include "tests/bench/gpu/bench_lines.h"
#include "tests/bench/gpu/bench_sizes.h"
#include "tests/bench/gpu/copy_rate.h"
#include "tests/bench/gpu/gpu_bench_options.h"
#include "tests/bench/gpu/op_rates.h"
#include "tests/bench/gpu/predicted_steps.h"
#include "tests/bench/gpu/random_checkpoint.h"
#include "tests/bench/gpu/rank_sums.h"
#include "tests/bench/gpu/served_rates.h"
#include "tests/bench/model_steps.h"
#include "tests/bench/rank_steps.h"
#include "third_party/absl/str_cat.h"
#include "worker/devices/cuda/cuda_devices.h"

namespace tessera::bench {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kInt4Group = 128;
constexpr int64_t kBarredRows = 4;  // behind a long context
constexpr kernels::ProbeOptions kEmulatedProbe = {.buffer_bytes = int64_t{1} << 20,
                                                  .reads_weights = true,
                                                  .matrix_size = 64,
                                                  .rows = 8,
                                                  .runs = 1};

class GpuBench {
 public:
  explicit GpuBench(GpuBenchOptions options)
      : options_(std::move(options)),
        emulated_(options_.device == kEmulated),
        sizes_(emulated_ ? kEmulatedSizes : kGpuSizes),
        lines_(!emulated_) {
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
    if (status.ok() && Wanted("mixture")) status = Mixture();
    if (status.ok() && Wanted("sample")) status = Sample();
    if (status.ok() && Wanted("sums")) status = Sums();
    if (status.ok() && Wanted("predict")) status = MeasureRates();
    if (status.ok() && Wanted("int4")) status = WriteModel(Weights::kInt4);
    if (status.ok() && Wanted("int4")) status = Steps("int4", v1::DATA_TYPE_UNSPECIFIED);
    if (status.ok() && (Wanted("int8") || Wanted("step") || Wanted("ranks") || Wanted("served")))
      status = WriteModel(Weights::kBFloat16);
    if (status.ok() && Wanted("int8")) status = Steps("int8", v1::DATA_TYPE_INT8);
    if (status.ok() && (Wanted("step") || Wanted("served")))
      status = Steps("", v1::DATA_TYPE_UNSPECIFIED);
    if (status.ok() && Wanted("ranks")) status = Ranks();
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
    return lines_.Report({{"device", options_.device},
                          {"shape", options_.shape},
                          {"copy_bytes_per_second", copy_rate_},
                          {"flops_per_second", multiply_rate_}},
                         options_.json);
  }

 private:
  bool Wanted(const std::string& name) const {
    return options_.only.empty() ||
           std::find(options_.only.begin(), options_.only.end(), name) != options_.only.end();
  }

  // Each part opens the device and closes it, so that the daemon of the last part has all memory.
  absl::StatusOr<std::unique_ptr<kernels::Device>> Open(bool other = false) {
    if (emulated_) return kernels::cuda::emulated::CreateCudaDevice({.memory_bytes = 1 << 29});
    other = other && !options_.other_device.empty();
    auto opened =
        worker::kCudaDevices.open({.name = other ? options_.other_device : options_.device,
                                   .tuning_folder = options_.tuning_folder,
                                   .build_version = std::string(BuildVersion())},
                                  {});
    if (!opened.ok()) return opened.status();
    if (!other) {
      path_ = opened->info.kernel_path();
      kind_ = opened->info.kind();
      lines_.set_kind(kind_);
      tuning_ = opened->tuning;
    }
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
    absl::Status status = EightBits(**device);
    status.Update(LastRows(**device, "attention", sizes_.heads, sizes_.long_context, 0.67));
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

  // Keys and values in 8 bits: tokens beside those of 16 in the same time.
  absl::Status EightBits(kernels::Device& device) {
    const auto [batch, tokens] = sizes_.more_decodes.front();
    const auto seconds = [&](kernels::DType type) {
      return DecodeAttentionSeconds(device, sizes_.heads, batch, tokens, type);
    };
    const auto of_16 = seconds(kernels::DType::kBF16);
    if (!of_16.ok()) return of_16.status();
    for (const kernels::DType type : {kernels::DType::kI8, kernels::DType::kF8}) {
      const auto of_8 = seconds(type);
      if (!of_8.ok()) return of_8.status();
      Add({StrCat("decode attention ", batch, " x ", tokens, ", ", kernels::Name(type)),
           *of_16 / *of_8, 1.6, 1.9,
           absl::StrFormat("%.1f us; beside %.1f us in 16 bits", *of_8 * 1e6, *of_16 * 1e6)});
    }
    return absl::OkStatus();
  }

  absl::Status Sums() {
    auto one = Open(), other = Open(/*other=*/true);
    for (const auto* device : {&one, &other}) {
      if (!device->ok()) return device->status();
    }
    for (const auto& [bytes, goal] : sizes_.sums) {
      const std::string name = StrCat("sum of 2 ranks, ", bytes >> 10, " KiB");
      const auto in_host = MeasureRankSum(**one, **other, bytes, /*as_peers=*/false);
      const auto as_peers = MeasureRankSum(**one, **other, bytes, /*as_peers=*/true);
      for (const auto* sum : {&in_host, &as_peers}) {
        if (!sum->ok()) return sum->status();
      }
      AddSum(name, *in_host, goal);
      if (as_peers->transport != in_host->transport) AddSum(name + ", as peers", *as_peers, goal);
      if (options_.other_device.empty()) lines_.AddTime(name, in_host->seconds);
    }
    return absl::OkStatus();
  }

  void AddSum(const std::string& name, const RankSum& sum, double goal) {
    Add({name, goal / sum.seconds, 0, goal > 0 ? 1.0 : 0,
         absl::StrFormat("%.1f us%s; by %s", sum.seconds * 1e6,
                         goal > 0 ? absl::StrFormat("; beside %.0f us", goal * 1e6) : "",
                         sum.transport)});
  }

  // Drafts that are verified, the rest of a prompt: beside one row. `goal`: of few, and the bar of
  // kBarredRows.
  absl::Status LastRows(kernels::Device& device, const char* name, const HeadShape& heads,
                        int64_t context, double goal) {
    double of_one = 0;
    for (const int64_t rows : sizes_.last_rows) {
      const auto seconds = RowsAttentionSeconds(device, heads, rows, context);
      if (!seconds.ok()) return seconds.status();
      if (of_one == 0) of_one = *seconds;
      const bool few = rows <= kernels::kFewSequenceRows;
      Add({StrCat(name, ", last ", rows, " of ", context), of_one / *seconds,
           rows == kBarredRows ? goal : 0, few ? goal : 0,
           absl::StrFormat("%.1f us; beside one row", *seconds * 1e6)});
    }
    return absl::OkStatus();
  }

  // Lines "linear, NAME, DEPTHxCOLUMNS, rows N".
  absl::Status Linears() {
    auto device = Open();
    if (!device.ok()) return device.status();
    std::map<kernels::DType, double> of_prompt;  // seconds with the most rows
    for (const kernels::DType weights :
         {kernels::DType::kBF16, kernels::DType::kI8, kernels::DType::kI4}) {
      for (const LinearShape& shape : sizes_.linears) {
        kernels::LinearSpec spec = {
            .in_features = shape.depth, .out_features = shape.columns, .weight_dtype = weights};
        if (weights == kernels::DType::kI4) spec.group_size = kInt4Group;
        const auto seconds = LinearSeconds(**device, spec, sizes_.linear_rows);
        if (!seconds.ok()) return seconds.status();
        for (size_t i = 0; i < seconds->size(); ++i) AddLinear(**device, spec, i, (*seconds)[i]);
        of_prompt[weights] += seconds->back();
      }
    }
    for (const kernels::DType codes : {kernels::DType::kI8, kernels::DType::kI4}) {
      Add({StrCat("linear, ", kernels::Name(codes), " beside bfloat16, rows ",
                  sizes_.linear_rows.back()),
           of_prompt[kernels::DType::kBF16] / of_prompt[codes], 0.75, 0.90,
           StrCat("all shapes; ", path_, " in 16 bits")});
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
      const std::string name =
          StrCat("route, ", sizes_.router.used, " of ", sizes_.router.experts, ", rows ", rows);
      Add({name, goal_seconds / *seconds, 0, 1,
           absl::StrFormat("%.1f us; beside %.0f us", *seconds * 1e6, goal_seconds * 1e6)});
      lines_.AddTime(name, *seconds);
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

  // The step of a model with experts, whose layers are alike: from those of two parts of it.
  absl::Status Mixture() {
    auto shape = NamedShape(emulated_ ? "tiny-experts" : "30b-a3b");
    if (!shape.ok()) return shape.status();
    const int64_t all = shape->layers;
    const std::array<int64_t, 2> layers = {all / 12, all / 4};
    std::array<double, 2> seconds = {};
    for (size_t i = 0; i < layers.size(); ++i) {
      shape->layers = layers[i];
      absl::Status status = WriteModel(*shape, Weights::kBFloat16, StrCat("mixture-", layers[i]));
      if (!status.ok()) return status;
      auto device = Open();
      if (!device.ok()) return device.status();
      const auto steps = LoadSteps(**device, v1::DATA_TYPE_UNSPECIFIED, 1);
      if (!steps.ok()) return steps.status();
      seconds[i] = StepSeconds(**steps, 1);
    }
    const double each = (seconds[1] - seconds[0]) / static_cast<double>(layers[1] - layers[0]);
    const double whole = seconds[0] + static_cast<double>(all - layers[0]) * each;
    const std::string name = "decode step, mixture, batch 1";
    const auto weights =
        static_cast<double>(all * shape->hidden *
                                (2 * (shape->heads + shape->kv_heads) * shape->head_dim +
                                 shape->experts + 3 * shape->experts_used * shape->ffn) +
                            shape->hidden * shape->vocabulary);
    Add({name, 2 * weights / copy_rate_ / whole, 0, 0.6,
         StrCat(all, " layers: ", Milliseconds(whole), " (", layers[0], ": ",
                Milliseconds(seconds[0]), ", ", layers[1], ": ", Milliseconds(seconds[1]),
                "); of the time of the weights that it reads")});
    lines_.AddTime(name, whole);
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

  absl::Status WriteModel(Weights weights) {
    const auto shape = NamedShape(options_.shape);
    if (!shape.ok()) return shape.status();
    return WriteModel(*shape, weights, weights == Weights::kInt4 ? "int4" : "bfloat16");
  }

  // To folder_. One model is there at a time where it lies in memory.
  absl::Status WriteModel(const ModelShape& shape, Weights weights, const std::string& name) {
    CleanUp();
    if (options_.folder.empty()) {
      const fs::path memory = "/dev/shm";
      std::error_code failed;
      root_ = fs::exists(memory, failed) ? memory : fs::temp_directory_path(failed);
      root_ /= StrCat("gpu_bench-", getpid());
    } else {
      root_ = options_.folder;
    }
    folder_ = root_ / name;
    if (fs::exists(folder_ / "model.safetensors")) return absl::OkStatus();
    return WriteRandomCheckpoint(shape, weights, options_.tokenizer, folder_);
  }

  absl::StatusOr<std::unique_ptr<ModelSteps>> LoadSteps(kernels::Device& device,
                                                        v1::DataType weights, int64_t most) {
    return ModelSteps::Load({.folder = folder_.string(),
                             .weights = weights,
                             .context_tokens = most * (sizes_.context + ModelSteps::kBlockTokens),
                             .max_batch = most},
                            device);
  }

  // Lines "decode step, NAME, batch N".
  absl::Status Steps(const std::string& name, v1::DataType weights) {
    auto device = Open();
    if (!device.ok()) return device.status();
    const auto steps = LoadSteps(**device, weights, sizes_.batches.back());
    if (!steps.ok()) return steps.status();
    if (tuning_ != nullptr && tuning_->spent_seconds() > 0) {
      // A choice that is begun is measured to its end.
      const double spent = tuning_->spent_seconds();
      Add({StrCat("tuning", name.empty() ? "" : ", ", name),
           kernels::TuningTable::kBudgetSeconds / spent, 0.98, 1,
           absl::StrFormat("%.2f s at this start", spent)});
    }
    for (const int64_t batch : sizes_.batches) {
      step_seconds_ = StepSeconds(**steps, batch);
      const double least =
          static_cast<double>((*steps)->BytesRead(batch, sizes_.context)) / copy_rate_;
      if (auto status = Predict(**steps, name, weights, batch); !status.ok()) return status;
      Add({StrCat("decode step, ", name, name.empty() ? "" : ", ", "batch ", batch),
           least / step_seconds_, 0.65, 0.80,
           StrCat(options_.shape, ", context ", sizes_.context, ": ", Milliseconds(step_seconds_),
                  "; of the time of its bytes")});
      if (options_.shape != "1b") {
        lines_.AddTime(StrCat("decode step, ", name, name.empty() ? "" : ", ", "batch ", batch),
                       step_seconds_);
      }
    }
    return absl::OkStatus();
  }

  // Steps of two ranks in bfloat16. On two GPUs, beside what both would do alone.
  absl::Status Ranks() {
    const bool two = !options_.other_device.empty();
    double alone = 0;  // steps per second
    for (const bool on_other : {false, true}) {
      if (on_other && !two) continue;
      auto device = Open(on_other);
      if (!device.ok()) return device.status();
      const auto steps = LoadSteps(**device, v1::DATA_TYPE_UNSPECIFIED, 1);
      if (!steps.ok()) return steps.status();
      alone += 1 / StepSeconds(**steps, 1);
    }
    auto one = Open(), other = Open(/*other=*/true);
    for (const auto* device : {&one, &other}) {
      if (!device->ok()) return device->status();
    }
    const auto ranks =
        MeasureRankSteps(**one, **other, folder_.string(), sizes_.context, sizes_.steps);
    if (!ranks.ok()) return ranks.status();
    Add({"decode step, 2 ranks, batch 1", 1 / ranks->seconds / alone, two ? 0.85 : 0, two ? 0.9 : 0,
         StrCat(Milliseconds(ranks->seconds),
                two ? "; of the sum of both GPUs' rates" : "; of one rank's rate, on the same GPU",
                "; by ", ranks->transport)});
    Add({"step of 2 ranks, a graph", ranks->graphs > 0 ? 1.0 : 0.01, 1, 1,
         StrCat(ranks->graphs, " kept")});
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

  void Add(Line line) { lines_.Add(std::move(line)); }

  static std::string Milliseconds(double seconds) {
    return absl::StrFormat("%.2f ms", seconds * 1e3);
  }

  GpuBenchOptions options_;
  const bool emulated_;
  Sizes sizes_;
  std::string path_ = "mma", kind_{kEmulated};
  v1::MeasuredProfile profile_;  // of the device, as a worker measures it; empty: not measured
  double copy_rate_ = 0, multiply_rate_ = 0;
  fs::path root_, folder_;                        // of all models, of the one that is measured
  double step_seconds_ = 0;                       // of the model measured last, at its last batch
  std::shared_ptr<kernels::TuningTable> tuning_;  // of the device that was opened last
  BenchLines lines_;
};

absl::StatusOr<bool> Main(int argc, char** argv) {
  bool printed = false;
  const auto options = ParseGpuBenchOptions(argc, argv, &printed);
  if (!options.ok()) return options.status();
  if (printed) return true;
  GpuBench bench(*options);
  const absl::Status status = bench.Run();
  const bool met = bench.Report();
  bench.CleanUp();
  if (!status.ok()) return status;
  return met || options->measure_only;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  const auto met = tessera::bench::Main(argc, argv);
  if (met.ok()) return *met ? 0 : 1;
  std::cerr << "gpu_bench: " << std::string(met.status().message()) << "\n";
  return 2;
}

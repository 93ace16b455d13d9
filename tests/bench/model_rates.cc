// A model that answers how long its steps take, one command a line, for the measurement cpu:
//
//   model_rates FOLDER bf16|int8|f32 ISA CONTEXT_TOKENS
//
//   read                    all of 2 GiB once:      "SECONDS BYTES"
//   multiply                2^34 products of pairs in registers: "SECONDS PRODUCTS"
//   decode BATCH CONTEXT    one step:               "SECONDS BYTES PRODUCTS" (weights and KV that it
//                           reads, and multiplications with them)
//   prefill TOKENS CHUNK    a prompt:               "SECONDS 0"
//   profile COMMAND ...     one of the last two:    "SECONDS OP=SECONDS ..."
//   onednn ROWS             its layers' products as oneDNN's packed matmuls: "SECONDS BYTES", bytes
//                           of a number: 2, or 4 where oneDNN multiplies no bf16 on the processor
//   logits TOKENS FILE      the logits behind a prompt of that length, as f32, to FILE: "0 0"
//
// KV memory holds CONTEXT_TOKENS in all; contexts that were not computed hold zeros. Every command
// waits a moment first, so that threads of others that spin for work go to sleep.
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/device/cpu_device.h"
#include "kernels/cpu/thread_pool.h"
#include "kvcache/block_pool.h"
#include "proto/model_folder.h"
#include "scheduler/shares.h"
#include "tests/bench/multiply_peak.h"
#include "tests/bench/onednn_linear.h"
#include "tests/bench/read_sum.h"
#include "tests/bench/timed_device.h"
#include "third_party/linux/cpu_share.h"
#include "worker/model/model.h"
#include "worker/model/model_dtypes.h"
#include "worker/step/step_inputs.h"

namespace tessera::bench {
namespace {

using kernels::DType;
using kernels::LinearSpec;

constexpr int64_t kBlockTokens = 64;  // the daemon's default
constexpr int64_t kMaxBatch = 16;
constexpr int64_t kMaxChunk = 2048;
constexpr int64_t kReadBytes = int64_t{2} << 30;
constexpr int64_t kProducts = int64_t{1} << 34;

double Seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

template <typename T>
T Need(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::cerr << "model_rates: " << value.status().ToString() << "\n";
  std::exit(2);
}

void Need(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << "model_rates: " << status.ToString() << "\n";
  std::exit(2);
}

class Rates {
 public:
  Rates(const std::string& folder, const std::string& weights, kernels::Isa isa, int64_t context)
      : context_tokens_((context + kBlockTokens - 1) / kBlockTokens * kBlockTokens) {
    device_ = Need(kernels::CreateCpuDevice({.isa = isa}));
    timed_ = std::make_unique<TimedDevice>(device_.get());
    pool_ = Need(kernels::ThreadPool::Create({.cores = AffinityCores()}));
    options_.folder = folder;
    options_.model = Need(ReadModelFolder(folder));
    options_.share = scheduler::WholeModelShare(options_.model);
    const auto asked = weights == "int8"  ? v1::DATA_TYPE_INT8
                       : weights == "f32" ? v1::DATA_TYPE_FLOAT32
                                          : v1::DATA_TYPE_BFLOAT16;
    const auto types =
        Need(worker::ResolveDTypes(options_.model, asked, v1::DATA_TYPE_UNSPECIFIED));
    options_.weight_dtype = types.weight_dtype;
    options_.kv_dtype = types.kv_dtype;
    options_.product_dtype = types.product_dtype;
    options_.limits = {.max_tokens = kMaxChunk,
                       .max_sequences = kMaxBatch,
                       .max_logit_rows = kMaxBatch,
                       .max_blocks_per_sequence = context_tokens_ / kBlockTokens};
    model_ = Need(worker::Model::Load(options_, *timed_, nullptr));
    const int64_t blocks = context_tokens_ / kBlockTokens;
    kv_ = Need(device_->Allocate(blocks * model_->KvBlockBytes(kBlockTokens)));
    std::memset(kv_.data(), 0, kv_.size_bytes());
    Need(model_->AttachKv(kv_.data(), blocks, kBlockTokens));
    arrays_ = std::make_unique<worker::StepArrays>(options_.limits);
    upload_ = Need(worker::StepUpload::Create(options_.limits, *device_));
    stream_ = Need(device_->CreateStream());
    for (int64_t i = 0; i < context_tokens_; ++i) tokens_.push_back(10 + (i * i) % 400);
  }

  double Read() {
    if (buffer_ == nullptr) {
      void* memory =
          mmap(nullptr, kReadBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) std::exit(2);
      madvise(memory, kReadBytes, MADV_HUGEPAGE);
      std::memset(memory, 1, kReadBytes);
      buffer_ = static_cast<std::byte*>(memory);
    }
    return ReadSeconds(buffer_, kReadBytes, *pool_);
  }

  double Multiply() { return MultiplySeconds(kProducts, *pool_); }

  // Every sequence gets one more token behind context - 1.
  double Decode(int64_t batch, int64_t context) {
    if (batch > kMaxBatch || batch * (context + kBlockTokens) > context_tokens_) {
      std::cerr << "model_rates: " << batch << " sequences of " << context << " tokens are above "
                << kMaxBatch << " sequences or " << context_tokens_ << " tokens in all\n";
      std::exit(2);
    }
    kvcache::BlockPool blocks(static_cast<int32_t>(context_tokens_ / kBlockTokens), kBlockTokens);
    std::vector<kvcache::BlockTable> tables;
    for (int64_t i = 0; i < batch; ++i) {
      tables.emplace_back(&blocks);
      tables.back().Grow(context);
    }
    arrays_->Begin();
    for (int64_t i = 0; i < batch; ++i) {
      const std::span<const int32_t> known(tokens_.data(), context);
      arrays_->AddLogitRow(arrays_->AddSequence({known, context, context - 1, 1, &tables[i]}));
    }
    return RunStep();
  }

  double Prefill(int64_t tokens, int64_t chunk) {
    kvcache::BlockPool blocks(static_cast<int32_t>(context_tokens_ / kBlockTokens), kBlockTokens);
    kvcache::BlockTable table(&blocks);
    table.Grow(tokens);
    double seconds = 0;
    for (int64_t first = 0; first < tokens; first += chunk) {
      const int64_t rows = std::min(chunk, tokens - first);
      arrays_->Begin();
      const int32_t row = arrays_->AddSequence(
          {std::span<const int32_t>(tokens_.data(), tokens), tokens, first, rows, &table});
      if (first + rows == tokens) arrays_->AddLogitRow(row + static_cast<int32_t>(rows) - 1);
      seconds += RunStep();
    }
    return seconds;
  }

  // Of weights that are multiplied, and of keys and values.
  int64_t BytesRead(int64_t batch, int64_t context) const {
    int64_t bytes = 0;
    for (const LinearSpec& spec : LinearSpecs()) bytes += device_->ops().PackedWeightBytes(spec);
    return bytes + batch * context * model_->KvBlockBytes(kBlockTokens) / kBlockTokens;
  }

  // With weights, and of attention: a key's and a value's for every query head.
  int64_t Products(int64_t batch, int64_t context) const {
    int64_t weights = 0;
    for (const LinearSpec& spec : LinearSpecs()) weights += spec.in_features * spec.out_features;
    const v1::Model& m = options_.model;
    return batch * (weights + 2 * m.layers() * m.heads() * m.head_dim() * context);
  }

  double OneDnn(int64_t rows) {
    const std::vector<LinearSpec> layer = LayerSpecs();
    if (onednn_ == nullptr) {
      // Of the last layer every row needs the first product alone.
      const int64_t matrices =
          (options_.model.layers() - 1) * static_cast<int64_t>(layer.size()) + 1;
      onednn_ = std::make_unique<OneDnnLinears>(DType::kBF16, layer, matrices, pool_->threads());
    }
    if (onednn_rows_ != rows) onednn_->SetRows(rows);
    onednn_rows_ = rows;
    const double start = Seconds();
    onednn_->Run();
    return Seconds() - start;
  }

  int64_t OneDnnNumberBytes() const { return SizeInBytes(onednn_->dtype()); }

  void WriteLogits(const std::string& path) const {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(model_->logits().data),
               options_.model.vocabulary() * static_cast<int64_t>(sizeof(float)));
  }

  TimedDevice& timed() { return *timed_; }

 private:
  LinearSpec Spec(int64_t in_features, int64_t out_features) const {
    return {.in_features = in_features,
            .out_features = out_features,
            .weight_dtype = options_.weight_dtype,
            .group_size = options_.int8_group_size};
  }

  // All that a step multiplies with.
  std::vector<LinearSpec> LinearSpecs() const {
    std::vector<LinearSpec> all = {Spec(options_.model.hidden(), options_.model.vocabulary())};
    for (int64_t layer = 0; layer < options_.model.layers(); ++layer) {
      for (const LinearSpec& spec : LayerSpecs()) all.push_back(spec);
    }
    return all;
  }

  // A dense layer's, as worker/model/weights fuses them.
  std::vector<LinearSpec> LayerSpecs() const {
    const v1::Model& m = options_.model;
    const int64_t heads = m.heads() + 2 * m.kv_heads();
    return {Spec(m.hidden(), heads * m.head_dim()), Spec(m.heads() * m.head_dim(), m.hidden()),
            Spec(m.hidden(), (m.gated_ffn() ? 2 : 1) * m.ffn_width()),
            Spec(m.ffn_width(), m.hidden())};
  }

  double RunStep() {
    const double start = Seconds();
    arrays_->Seal();
    const auto inputs = Need(upload_->Copy(*arrays_, false, *stream_));
    Need(model_->Forward(inputs, *stream_));
    Need(stream_->Synchronize());
    return Seconds() - start;
  }

  const int64_t context_tokens_;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<TimedDevice> timed_;
  std::unique_ptr<kernels::ThreadPool> pool_;
  worker::ModelOptions options_;
  kernels::Buffer kv_;
  std::unique_ptr<worker::Model> model_;
  std::unique_ptr<worker::StepArrays> arrays_;
  std::unique_ptr<worker::StepUpload> upload_;
  std::unique_ptr<kernels::Stream> stream_;
  std::vector<int32_t> tokens_;
  std::byte* buffer_ = nullptr;
  std::unique_ptr<OneDnnLinears> onednn_;
  int64_t onednn_rows_ = 0;
};

// Answers one command; false where there is none.
bool Answer(Rates& rates, std::istringstream& words) {
  std::string name, file;
  int64_t a = 0, b = 0;
  words >> name;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (name == "read") {
    std::printf("%.6f %ld\n", rates.Read(), static_cast<long>(kReadBytes));
  } else if (name == "multiply") {
    std::printf("%.6f %ld\n", rates.Multiply(), static_cast<long>(kProducts));
  } else if (name == "decode" && words >> a >> b) {
    const double seconds = rates.Decode(a, b);
    std::printf("%.6f %ld %ld\n", seconds, static_cast<long>(rates.BytesRead(a, b)),
                static_cast<long>(rates.Products(a, b)));
  } else if (name == "prefill" && words >> a >> b) {
    std::printf("%.6f 0\n", rates.Prefill(a, b));
  } else if (name == "onednn" && words >> a) {
    const double seconds = rates.OneDnn(a);
    std::printf("%.6f %ld\n", seconds, static_cast<long>(rates.OneDnnNumberBytes()));
  } else if (name == "logits" && words >> a >> file) {
    rates.Prefill(a, a);
    rates.WriteLogits(file);
    std::printf("0 0\n");
  } else if (name == "profile" && words >> name >> a >> b) {
    rates.timed().set_timing(true);
    rates.timed().Take();
    const double seconds = name == "decode" ? rates.Decode(a, b) : rates.Prefill(a, b);
    rates.timed().set_timing(false);
    std::printf("%.6f", seconds);
    for (const auto& [op, spent] : rates.timed().Take()) std::printf(" %s=%.6f", op.c_str(), spent);
    std::printf("\n");
  } else {
    return false;
  }
  return true;
}

int Main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: model_rates FOLDER bf16|int8|f32 ISA CONTEXT_TOKENS\n";
    return 2;
  }
  Rates rates(argv[1], argv[2], Need(kernels::ParseIsa(argv[3])), std::atoll(argv[4]));
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    if (!Answer(rates, words)) {
      std::cerr << "model_rates: what is \"" << line << "\"?\n";
      return 2;
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Main(argc, argv); }

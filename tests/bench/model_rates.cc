// A model that answers how long its steps take, one command a line, for the measurements cpu and
// gguf (whose FOLDER is a file, and whose steps' bytes and products are not asked for):
//
//   model_rates FOLDER auto|bf16|int8|f32 ISA CONTEXT_TOKENS
//
//   read                    all of 2 GiB once:      "SECONDS BYTES"
//   multiply                2^34 products of pairs in registers: "SECONDS PRODUCTS"
//   decode BATCH CONTEXT    one step:               "SECONDS BYTES PRODUCTS" (weights and KV that
//   it
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
#include "proto/layers/layers.h"
#include "tests/bench/model_steps.h"
#include "tests/bench/multiply_peak.h"
#include "tests/bench/onednn_linear.h"
#include "tests/bench/read_sum.h"
#include "tests/bench/timed_device.h"
#include "third_party/linux/cpu_share.h"

namespace tessera::bench {
namespace {

using kernels::DType;
using kernels::LinearSpec;

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

class Rates {
 public:
  Rates(const std::string& folder, const std::string& weights, kernels::Isa isa, int64_t context) {
    device_ = Need(kernels::CreateCpuDevice({.isa = isa}));
    timed_ = std::make_unique<TimedDevice>(device_.get());
    pool_ = Need(kernels::ThreadPool::Create({.cores = AffinityCores()}));
    const auto asked = weights == "int8"   ? v1::DATA_TYPE_INT8
                       : weights == "f32"  ? v1::DATA_TYPE_FLOAT32
                       : weights == "auto" ? v1::DATA_TYPE_UNSPECIFIED
                                           : v1::DATA_TYPE_BFLOAT16;
    steps_ = Need(
        ModelSteps::Load({.folder = folder, .weights = asked, .context_tokens = context}, *timed_));
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

  double OneDnn(int64_t rows) {
    const std::vector<LinearSpec> layer = steps_->LayerSpecs();
    if (onednn_ == nullptr) {
      // Of the last layer every row needs the first product alone.
      const int64_t matrices =
          (LayerCount(steps_->shape()) - 1) * static_cast<int64_t>(layer.size()) + 1;
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
    file.write(reinterpret_cast<const char*>(steps_->model().logits().data),
               steps_->shape().vocabulary() * static_cast<int64_t>(sizeof(float)));
  }

  TimedDevice& timed() { return *timed_; }
  ModelSteps& steps() { return *steps_; }

 private:
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<TimedDevice> timed_;
  std::unique_ptr<kernels::ThreadPool> pool_;
  std::unique_ptr<ModelSteps> steps_;
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
    const double seconds = rates.steps().Decode(a, b);
    std::printf("%.6f %ld %ld\n", seconds, static_cast<long>(rates.steps().BytesRead(a, b)),
                static_cast<long>(rates.steps().Products(a, b)));
  } else if (name == "prefill" && words >> a >> b) {
    std::printf("%.6f 0\n", rates.steps().Prefill(a, b));
  } else if (name == "onednn" && words >> a) {
    const double seconds = rates.OneDnn(a);
    std::printf("%.6f %ld\n", seconds, static_cast<long>(rates.OneDnnNumberBytes()));
  } else if (name == "logits" && words >> a >> file) {
    rates.steps().Prefill(a, a);
    rates.WriteLogits(file);
    std::printf("0 0\n");
  } else if (name == "profile" && words >> name >> a >> b) {
    rates.timed().set_timing(true);
    rates.timed().Take();
    const double seconds =
        name == "decode" ? rates.steps().Decode(a, b) : rates.steps().Prefill(a, b);
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
    std::cerr << "usage: model_rates FOLDER auto|bf16|int8|f32 ISA CONTEXT_TOKENS\n";
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

// Steps of single tokens, padded on the emulated GPU so that few graphs serve all batches: rows
// have the bits that they have without padding.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/runtime.h"
#include "kernels/half_floats.h"
#include "kvcache/block_pool.h"
#include "proto/layers/kv_sizes.h"
#include "proto/layers/layers.h"
#include "proto/model/model_folder.h"
#include "tests/kernels/device_under_test.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/step/step_arrays.h"
#include "worker/step/step_inputs.h"

namespace tessera::worker {
namespace {

using kernels::DType;

constexpr int64_t kBlockTokens = 8;
constexpr int64_t kBlocks = 32;
constexpr int64_t kMaxBatch = 12;

struct Fixture {
  Fixture(const std::string& name, DType type) {
    options.folder = GoldenFolder(name);
    options.model = ReadModelFolder(options.folder.string()).value();
    options.share = WholeShare(options.model);
    options.weight_dtype = options.kv_dtype = options.product_dtype = type;
    options.limits = {.max_tokens = kMaxBatch,
                      .max_sequences = kMaxBatch,
                      .max_logit_rows = kMaxBatch,
                      .max_blocks_per_sequence = 4};
    under_test = kernels::cuda::MakeCudaUnderTest(int64_t{1} << 28).value();
    kernels::Device& device = *under_test.device;
    stream = device.CreateStream().value();
    model = Model::Load(options, device, nullptr).value();
    const KvBlocks blocks(kBlocks, 0, KeepsStates(options.model) ? kMaxBatch : 0);
    kv = device
             .Allocate(BytesOf(blocks, BlockBytesOf(options.model, options.share,
                                                    type == DType::kF32 ? 4 : 2, kBlockTokens,
                                                    /*windows_apart=*/false)))
             .value();
    // Small numbers in every type, so that what is written where nothing should be is seen.
    const std::vector<std::byte> small(kv.size_bytes(), std::byte{0x3c});
    REQUIRE(stream->CopyToDevice(kv.data(), small.data(), kv.size_bytes()).ok());
    REQUIRE(stream->Synchronize().ok());
    REQUIRE(model->AttachKv(kv.data(), blocks, kBlockTokens).ok());
    upload = StepUpload::Create(options.limits, device).value();
  }

  // Logits of `batch` sequences, each with a token of its own at position 3 to 7.
  std::vector<float> Decode(int batch, bool padded) {
    kvcache::BlockPool pool(kBlocks, kBlockTokens);
    std::vector<kvcache::BlockTable> tables;
    const std::vector<int32_t> tokens = {5, 9, 13, 17, 21, 25, 29, 33, 37, 41};
    StepArrays arrays(options.limits);
    arrays.Begin();
    tables.reserve(batch);
    for (int i = 0; i < batch; ++i) {
      const int64_t context = 4 + i % 5;  // all in one block
      tables.emplace_back(&pool);
      tables.back().Grow(context);
      arrays.AddLogitRow(arrays.AddSequence({.tokens = tokens,
                                             .prompt_tokens = context,
                                             .first = context - 1,
                                             .rows = 1,
                                             .blocks = &tables.back(),
                                             .seat = KeepsStates(options.model) ? i : -1}));
    }
    arrays.Seal();
    const auto inputs = upload->Copy(arrays, padded, *stream);
    REQUIRE(inputs.ok());
    REQUIRE(model->Forward(*inputs, *stream).ok());
    std::vector<float> logits(batch * options.model.vocabulary());
    REQUIRE(stream
                ->CopyToHost(logits.data(), model->logits().data,
                             static_cast<int64_t>(logits.size() * sizeof(float)))
                .ok());
    REQUIRE(stream->Synchronize().ok());
    REQUIRE((under_test.check_memory == nullptr || under_test.check_memory().ok()));
    return logits;
  }

  // All keys, values and states.
  std::vector<std::byte> Kept() {
    std::vector<std::byte> bytes(kv.size_bytes());
    REQUIRE(stream->CopyToHost(bytes.data(), kv.data(), kv.size_bytes()).ok());
    REQUIRE(stream->Synchronize().ok());
    return bytes;
  }

  ModelOptions options;
  kernels::cuda::CudaUnderTest under_test;
  std::unique_ptr<kernels::Stream> stream;
  std::unique_ptr<Model> model;
  kernels::Buffer kv;
  std::unique_ptr<StepUpload> upload;
};

TEST_CASE("a step of single tokens is padded to few distinct counts") {
  CHECK(PaddedRows(1) == 1);
  CHECK(PaddedRows(3) == 4);
  CHECK(PaddedRows(5) == 8);
  CHECK(PaddedRows(9) == 16);
  CHECK(PaddedRows(64) == 64);
  CHECK(PaddedRows(65) == 96);

  const StepLimits limits = {.max_tokens = 40,
                             .max_sequences = kMaxBatch,
                             .max_logit_rows = kMaxBatch,
                             .max_blocks_per_sequence = 4};
  kvcache::BlockPool pool(kBlocks, kBlockTokens);
  std::vector<kvcache::BlockTable> tables;
  tables.reserve(kMaxBatch);
  for (int i = 0; i < kMaxBatch; ++i) tables.emplace_back(&pool).Grow(9);
  const std::vector<int32_t> tokens(9, 5);
  StepArrays arrays(limits);
  const auto padded = [&](int sequences, int64_t rows_each) {
    arrays.Begin();
    for (int i = 0; i < sequences; ++i) {
      const int32_t row = arrays.AddSequence({tokens, 9, 9 - rows_each, rows_each, &tables[i]});
      arrays.AddLogitRow(row + static_cast<int32_t>(rows_each) - 1);
    }
    arrays.Seal();
    return arrays.padded_extents().rows;
  };
  CHECK(padded(5, 1) == 8);
  CHECK(arrays.extents().rows == 5);
  CHECK(padded(9, 1) == 9);  // 16 are above the limits
  CHECK(padded(3, 2) == 6);  // not of single tokens
}

TEST_CASE("padded steps share graphs, and give the bits of steps that are not padded") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  const auto [name, type] =
      GENERATE(table<const char*, DType>({{"llama", DType::kF32},
                                          {"llama_bf16_heads_64", DType::kBF16},
                                          {"mixtral_fp16_heads_64", DType::kF16}}));
  CAPTURE(name);
  kernels::cuda::emulated::Inject({.vary_schedules = true});
  std::vector<std::vector<float>> plain;
  {
    Fixture fixture(name, type);
    for (const int batch : {5, 6, 7, 8}) plain.push_back(fixture.Decode(batch, false));
  }
  Fixture fixture(name, type);
  const int64_t before = kernels::cuda::emulated::GraphsLaunched();
  for (const int batch : {5, 6, 7, 8}) {
    CAPTURE(batch);
    CHECK(fixture.Decode(batch, true) == plain[batch - 5]);
  }
  // The first is seen, the second captured, and all but the first run as the one graph.
  CHECK(kernels::cuda::emulated::GraphsLaunched() == before + 3);
#endif
}

TEST_CASE("padding touches no seat, with 1, 3 and 6 sequences at each size of a graph") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  struct Left {
    std::vector<float> logits;
    std::vector<std::byte> kept;
  };
  const auto run = [](bool pads) {
    Fixture fixture("qwen3_5", DType::kF32);
    REQUIRE(KeepsStates(fixture.options.model));
    std::vector<Left> left;
    for (const int batch : {1, 3, 6, 5, 3, 1, 6}) {  // of 1, 4 and 8 rows
      for (int time = 0; time < 2; ++time) {
        left.push_back({fixture.Decode(batch, pads), fixture.Kept()});
      }
    }
    return left;
  };
  const std::vector<Left> plain = run(false);
  const int64_t before = kernels::cuda::emulated::GraphsLaunched();
  const std::vector<Left> padded = run(true);
  CHECK(kernels::cuda::emulated::GraphsLaunched() > before);
  REQUIRE(padded.size() == plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    CAPTURE(i);
    CHECK(padded[i].logits == plain[i].logits);
    CHECK((padded[i].kept == plain[i].kept));
  }
#endif
}

}  // namespace
}  // namespace tessera::worker

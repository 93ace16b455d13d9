#include "scheduler/cost/cost_model.h"

#include <catch2/catch.hpp>

#include "tests/fakes/uniform_model.h"
#include "tests/scheduler/cost/shapes.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: the models and devices of this folder's tests

constexpr double kGib = 1073741824.0;

LinkSpec Pcie() {
  LinkSpec link;
  link.bytes_per_second = 25e9;
  link.latency_seconds = 10e-6;
  return link;
}

StageSpec Stage(const std::vector<const DeviceSpec*>& ranks, int first_layer, int layers,
                int of_layers) {
  StageSpec stage;
  stage.ranks.assign(ranks.begin(), ranks.end());
  stage.communicator = {{stage.width(), Pcie(), false}};
  stage.first_layer = first_layer;
  stage.layers = layers;
  stage.holds_embedding = first_layer == 0;
  stage.holds_head = first_layer + layers == of_layers;
  return stage;
}

TEST_CASE("parameters of published models") {
  CHECK(LayerParameters(Llama2_70B(), FullestShare(Llama2_70B(), 1), 0) == 855638016);
  CHECK(TotalParameters(Llama2_70B()) == Approx(68.98e9).epsilon(1e-3));
  CHECK(TotalParameters(Llama3_8B()) == Approx(8.03e9).epsilon(1e-3));
  CHECK(TotalParameters(Llama30B()) == Approx(32.53e9).epsilon(1e-3));
  CHECK(TotalParameters(Mixtral()) == Approx(46.7e9).epsilon(1e-3));
}

TEST_CASE("int4 checkpoints: layers take half a byte and a word a group, tables are as stored") {
  v1::Model model;  // Qwen2.5-7B
  model.set_name("a-7B-AWQ");
  tests::SetLayers({.layers = 28,
                    .heads = 28,
                    .kv_heads = 4,
                    .head_dim = 128,
                    .ffn_width = 18944,
                    .gated = true},
                   &model);
  model.set_hidden(3584);
  model.set_vocabulary(152064);
  model.set_dtype(v1::DATA_TYPE_FLOAT16);
  const ModelShape halves = *MakeModelShape(model);
  model.mutable_quantization()->set_group_size(128);
  const ModelShape int4 = *MakeModelShape(model);
  const double layer = 233046016, tables = 2.0 * 152064 * 3584;
  const RankShare whole = FullestShare(int4, 1);
  REQUIRE(LayerParameters(int4, whole, 0) == layer);
  CHECK(LayerWeightBytes(int4, whole, 0) == layer * (0.5 + 4.0 / 128));
  CHECK(LayerWeightBytes(halves, whole, 0) == layer * 2);
  CHECK(TotalWeightBytes(int4) == Approx(28 * layer * 0.53125 + tables * 2));
  CHECK(KvBytesPerToken(int4) == KvBytesPerToken(halves));
  // Columns of ranks begin between groups.
  CHECK(FullestShare(int4, 3).kinds[0].ffn_columns == 50 * 128);  // of 148 groups

  const DeviceSpec device = A6000();
  const StageSpec stage = Stage({&device}, 0, 28, 28);
  CHECK(StageWeightBytes(int4, stage) == Approx(TotalWeightBytes(int4)));
  model.mutable_quantization()->set_group_size(32);
  CHECK(MatrixElementBytes(*MakeModelShape(model)) == 0.625);
  model.mutable_quantization()->set_group_size(0);  // workers cut what is wider than 128
  CHECK(MatrixElementBytes(*MakeModelShape(model)) == 0.53125);
  // A GGUF file, a quarter of whose weights is decoded to 16 bits.
  v1::Quantization& gguf = *model.mutable_quantization();
  gguf.set_format(v1::WEIGHT_FORMAT_GGUF);
  gguf.set_group_size(32);
  gguf.set_code_bytes(0.45);
  gguf.set_decoded_part(0.25);
  const ModelShape mixed = *MakeModelShape(model);
  CHECK(MatrixElementBytes(mixed) == Approx(0.45 + 0.25 * 2));
  CHECK(StageWeightBytes(mixed, stage) == Approx(TotalWeightBytes(mixed)));
  const auto int8 = MakeModelShape(model, v1::DATA_TYPE_INT8);
  CHECK_THAT(std::string(int8.status().message()),
             Catch::Contains("a-7B-AWQ: its weights are quantised already"));
}

TEST_CASE(
    "KV heads: grouped-query attention is charged, and replication where ranks outnumber kv "
    "heads") {
  const ModelShape model = Llama2_70B();
  CHECK(KvBytesPerToken(model) == 2 * 80 * 8 * 128 * 2);
  CHECK(KvBytesPerTokenLayer(model, FullestShare(model, 8), 0) == 2 * 1 * 128 * 2);
  CHECK(KvBytesPerTokenLayer(model, FullestShare(model, 16), 0) == 2 * 1 * 128 * 2);
  CHECK(FullestShare(model, 16).kinds[0].query_heads == 4);
}

TEST_CASE("a width that does not divide is as slow as its fullest rank") {
  const LayerPart share = FullestShare(Llama2_70B(), 3).kinds[0];  // 8 kv heads: 3, 3, 2
  CHECK(share.kv_heads == 3);
  CHECK(share.query_heads == 24);
  CHECK(share.ffn_columns == 9558);  // 28672 / 3 = 9557.3
}

TEST_CASE("mixture of experts: a step reads the experts its tokens choose, memory holds all") {
  CHECK(ExpertsRead(8, 2, 1) == Approx(2));
  CHECK(ExpertsRead(8, 2, 2) == Approx(8 * (1 - 0.5625)));
  CHECK(ExpertsRead(8, 2, 1000) == Approx(8));
  const ModelShape model = Mixtral();
  DeviceSpec device = Device("x", 80, 1e9, 1000);  // compute is free
  const RankShare whole = FullestShare(model, 1);
  const auto layer = [&](double rows) {
    return LayerSeconds(model, device, whole, {{1, Pcie(), false}}, DecodeWork(rows, 0), 0);
  };
  const double expert = 3.0 * 4096 * 14336 * 2 / 1e12;
  const double rest = (2.0 * 4096 * 4096 + 2.0 * 4096 * 1024 + 4096.0 * 8) * 2 / 1e12;
  CHECK(layer(1) == Approx(rest + 2 * expert).epsilon(1e-4));
  CHECK(layer(64) == Approx(rest + 8 * expert).epsilon(1e-4));
  CHECK(LayerParameters(model, whole, 0) == 41943040 + 32768 + 8 * 176160768.0);
}

TEST_CASE("a shared expert beside routed ones is read by every step, and held by all ranks") {
  const ModelShape alone = Mixtral();
  ModelShape model = alone;
  model.kinds[0].ffn_width = 2 * 14336;
  const RankShare whole = FullestShare(model, 1);
  const double shared = 2 * 176160768.0;
  CHECK(LayerParameters(model, whole, 0) ==
        LayerParameters(alone, FullestShare(alone, 1), 0) + shared);
  CHECK(FullestShare(model, 4).kinds[0].ffn_columns == 7168);
  CHECK(FullestShare(model, 4).kinds[0].experts == 2);
  DeviceSpec device = Device("x", 80, 1e9, 1000);  // compute is free
  const auto layer = [&](const ModelShape& shape) {
    const RankShare share = FullestShare(shape, 1);
    return LayerSeconds(shape, device, share, {{1, Pcie(), false}}, DecodeWork(1, 0), 0);
  };
  CHECK(layer(model) - layer(alone) == Approx(shared * 2 / 1e12).epsilon(1e-4));
}

TEST_CASE("decode is a sum of weights, compute and KV") {
  const ModelShape model = Llama2_70B();
  DeviceSpec device = Device("x", 80, 100, 1000);
  device.compute_efficiency = 0.5;
  device.memory_efficiency = 0.8;
  device.layer_overhead_seconds = 5e-6;
  // Per layer: 1711276032 B / 800 GB/s; (2*855638016*10 + 4*10000*64*128) / 50 TFLOP/s; 10000*4096
  // B / 800 GB/s.
  const double weights = 1711276032 / 800e9;
  const double compute = (2 * 855638016.0 * 10 + 4 * 10000.0 * 8192) / 50e12;
  const double kv = 10000 * 4096 / 800e9;
  const StepWork work = DecodeWork(10, 1000);
  CHECK(StageSeconds(model, Stage({&device}, 20, 4, 80), work) ==
        Approx(4 * (weights + compute + kv + 5e-6)));
}

// What one core of a Zen 4 takes for n rows of bfloat16 weights, 32 GB/s and 210 GFLOPS: 1 row at
// 30, 8 at 23, 16 at 13.8 GB/s (tests/bench/RESULTS.md).
TEST_CASE("measured products stand for bandwidth and FLOP/s with weights of their type") {
  const ProductPoints points = {{1, 1e-12}, {8, 2e-12}, {512, 64e-12}};
  CHECK(SecondsPerByte(points, 0.5) == 1e-12);
  CHECK(SecondsPerByte(points, 4.5) == Approx(1.5e-12));
  CHECK(SecondsPerByte(points, 260) == Approx(33e-12));
  CHECK(SecondsPerByte(points, 1024) == Approx(128e-12));  // as the rows

  DeviceSpec device = A6000();
  const ModelShape halves = Llama3_8B();
  ModelShape int4 = halves;
  int4.code_group_inputs = 128;
  int4.code_bytes = 0.53125;
  int4.matrix_type = WeightType::kInt4;
  const RankShare share = FullestShare(halves, 1);
  const auto seconds = [&](const ModelShape& model, const StepWork& work) {
    return LayerSeconds(model, device, share, {}, work, 0);
  };
  const StepWork few = DecodeWork(8, 0), many = PrefillWork(1024, 0);
  const double before = seconds(halves, few), unmeasured = seconds(int4, few);
  CHECK(WeightsReadRate(int4, device) == 768e9);
  CHECK(ProductFlops(int4, device) == 155e12);
  device.products[static_cast<size_t>(WeightType::kInt4)] = points;
  CHECK(seconds(halves, few) == before);
  const double bytes = LayerWeightBytes(int4, share, 0);
  CHECK(seconds(int4, few) == Approx(bytes * 2e-12));
  CHECK(seconds(int4, few) > unmeasured);
  // Attention of a prompt comes on top.
  const double attention = 4.0 * 4096 * many.prefill_attention_pairs / 155e12;
  CHECK(seconds(int4, many) == Approx(bytes * 128e-12 + attention));
  CHECK(WeightsReadRate(int4, device) == Approx(1e12));
  CHECK(ProductFlops(int4, device) == Approx(2 * 512 / (0.53125 * 64e-12)));
  // The head has another type: nobody measured it.
  const double head = HeadSeconds(int4, device, share, {}, few);
  CHECK(head == HeadSeconds(halves, A6000(), share, {}, few));
  device.products[static_cast<size_t>(WeightType::kHalf)] = points;
  CHECK(HeadSeconds(int4, device, share, {}, few) == Approx(2.0 * 128256 * 4096 * 2e-12));
}

TEST_CASE("measured products: an expert has the rows that choose it, not all of a step") {
  DeviceSpec device = A6000();
  device.products[static_cast<size_t>(WeightType::kHalf)] = {{1, 1e-12}, {2, 1e-12}, {4, 9e-12}};
  const ModelShape model = Mixtral();
  const RankShare share = FullestShare(model, 1);
  const double rows = 4, read = ExpertsRead(8, 2, rows);
  REQUIRE(rows * 2 / read < 2);
  const double experts = read * 3 * 4096 * 14336 * 2;
  const double all = LayerWeightBytes(model, share, 0) - 8.0 * 3 * 4096 * 14336 * 2;
  CHECK(LayerSeconds(model, device, share, {}, DecodeWork(rows, 0), 0) ==
        Approx(all * 9e-12 + experts * 1e-12));
}

TEST_CASE("a CPU multiplies the rows that decode while it reads the weights") {
  const ModelShape model = Llama3_8B();
  DeviceSpec device = Device("cpu", 20, 0.21, 32);
  const StageSpec stage = Stage({&device}, 10, 4, 32);
  const double bytes = 4 * LayerParameters(model, FullestShare(model, 1), 10) * 2;
  const auto rate = [&](double rows) {
    return bytes / StageSeconds(model, stage, DecodeWork(rows, 0)) / 1e9;
  };
  CHECK(rate(8) < 15);  // added, as where nothing is hidden
  device.hides_decode = true;
  CHECK(rate(1) == Approx(30).epsilon(0.25));
  CHECK(rate(8) == Approx(23).epsilon(0.25));
  CHECK(rate(16) == Approx(13.8).epsilon(0.25));
  // Beside a prompt both take the same units; attention to what is cached is not hidden.
  const double prompt = StageSeconds(model, stage, PrefillWork(100, 0));
  CHECK(StageSeconds(model, stage, PrefillWork(100, 0) + DecodeWork(10, 0)) ==
        Approx(prompt + 10 * bytes / 210e9).epsilon(1e-3));
  const double attention = StageSeconds(model, stage, DecodeWork(4, 1000)) -
                           StageSeconds(model, stage, DecodeWork(4, 0));
  CHECK(attention == Approx(4 * 4000 * (4 * 4096 / 210e9 + 2 * 8 * 128 * 2 / 32e9)));
  // The head too.
  const double head = 128256 * 4096.0;
  CHECK(HeadSeconds(model, device, FullestShare(model, 1), {}, DecodeWork(2, 0)) ==
        Approx(head * 2 / 32e9));
  CHECK(HeadSeconds(model, device, FullestShare(model, 1), {}, DecodeWork(20, 0)) ==
        Approx(head * 2 * 20 / 210e9));
}

TEST_CASE("prefill is a maximum of compute and bytes; causal attention counts half the square") {
  const ModelShape model = Llama2_70B();
  const DeviceSpec device = Device("x", 80, 100, 1000);
  const StageSpec stage = Stage({&device}, 20, 1, 80);
  const double flops = 2 * 855638016.0 * 1000 + 2 * 1000.0 * 1000 * 8192;
  CHECK(StageSeconds(model, stage, PrefillWork(1000, 0)) == Approx(flops / 100e12));
  const double bytes = 1711276032 + 4 * 4096;
  CHECK(StageSeconds(model, stage, PrefillWork(4, 0)) == Approx(bytes / 1000e9));
  // A prompt in two chunks does the attention of the whole.
  const StepWork halves = PrefillWork(500, 0, false) + PrefillWork(500, 500);
  CHECK(halves.prefill_attention_pairs == PrefillWork(1000, 0).prefill_attention_pairs);
}

TEST_CASE("a mixed step reads its weights once") {
  const ModelShape model = Llama2_70B();
  const DeviceSpec device = Device("x", 80, 100, 1000);
  const StageSpec stage = Stage({&device}, 20, 1, 80);
  const double both = StageSeconds(model, stage, DecodeWork(8, 500) + PrefillWork(1000, 0));
  const double prefill = StageSeconds(model, stage, PrefillWork(1000, 0));
  const double decode = StageSeconds(model, stage, DecodeWork(8, 500));
  CHECK(both == Approx(prefill + decode - 1711276032 / 1000e9));
}

TEST_CASE("the head of Llama-3-8B reads 1.05 GB per step, 2.4 layers' worth") {
  const ModelShape model = Llama3_8B();
  const DeviceSpec device = Device("x", 80, 1e9, 1000);
  const StepWork one = DecodeWork(1, 0);
  const double head = HeadSeconds(model, device, FullestShare(model, 1), {}, one);
  CHECK(head == Approx(1.0507e9 / 1e12).epsilon(1e-3));
  const double with = StageSeconds(model, Stage({&device}, 30, 2, 32), one);
  const double without = StageSeconds(model, Stage({&device}, 28, 2, 32), one);
  CHECK((with - without) / (without / 2) == Approx(2.41).epsilon(0.01));
}

TEST_CASE(
    "a rank computes its rows of the logits, and the first one gathers what it lacks of them") {
  const ModelShape model = Llama3_8B();
  DeviceSpec device = Device("x", 80, 100, 1000);
  device.compute_efficiency = 0.5;
  device.memory_efficiency = 0.8;
  const StepWork work = DecodeWork(32, 700);
  for (const int width : {1, 2, 4, 8}) {
    INFO("width " << width);
    // 128,256 rows of 4,096 in two bytes; logits of two bytes over 25 GB/s.
    const double parameters = 128256.0 / width * 4096;
    const double gather = width == 1 ? 0 : 10e-6 + 32 * 128256 * 2.0 * (width - 1) / width / 25e9;
    CHECK(HeadSeconds(model, device, FullestShare(model, width), {{width, Pcie(), false}}, work) ==
          Approx(parameters * 2 / 800e9 + 2 * parameters * 32 / 50e12 + gather).epsilon(1e-12));
  }
  // Over two tiers the slower link takes them all, shared by the ranks of a machine where it is.
  LinkSpec outside = Pcie();
  outside.bytes_per_second = 5e9;
  outside.latency_seconds = 40e-6;
  const double lacking = 32 * 128256 * 2.0 * 3 / 4;
  for (const bool shared : {false, true}) {
    CHECK(GatherSeconds({{2, Pcie(), false}, {2, outside, shared}}, 32 * 128256 * 2.0) ==
          Approx(40e-6 + lacking / (shared ? 2.5e9 : 5e9)).epsilon(1e-12));
  }
}

TEST_CASE("tied embeddings are held once by a stage that has both, twice over two stages") {
  ModelShape model = DenseShape("small", 4, 1024, 8, 2, 4096, 30000);
  // 2*H*(n*h_d) + 2*H*(n_kv*h_d) + 3*H*F, and V*H.
  const double layer = 2.0 * 1024 * 1024 + 2 * 1024 * 256 + 3 * 1024 * 4096.0;
  const double table = 30000.0 * 1024;
  const DeviceSpec device = A6000();
  const auto bytes = [&](int first_layer, int layers, int width) {
    const std::vector<const DeviceSpec*> ranks(static_cast<size_t>(width), &device);
    return StageWeightBytes(model, Stage(ranks, first_layer, layers, 4));
  };
  for (const bool tied : {false, true}) {
    INFO("tied " << tied);
    model.tied_embeddings = tied;
    for (const int width : {1, 2}) {
      CHECK(bytes(0, 4, width) == 2 * (4 * layer + (tied ? 1 : 2) * table) / width);
      CHECK(bytes(0, 3, width) == 2 * (3 * layer + table) / width);
      CHECK(bytes(3, 1, width) == 2 * (1 * layer + table) / width);
    }
    CHECK(bytes(1, 2, 1) == 2 * 2 * layer);
    CHECK(TotalParameters(model) == 4 * layer + (tied ? 1 : 2) * table);
  }
}

TEST_CASE("two all-reduces per layer, and a stage waits for its slowest rank") {
  const ModelShape model = Llama2_70B();
  const DeviceSpec fast = Device("fast", 80, 100, 2000), slow = Device("slow", 80, 100, 1000);
  const StepWork work = DecodeWork(1, 0);
  const auto seconds = [&](std::vector<const DeviceSpec*> ranks) {
    return StageSeconds(model, Stage(std::move(ranks), 20, 1, 80), work);
  };
  CHECK(seconds({&fast, &slow}) == seconds({&slow, &slow}));
  CHECK(seconds({&fast, &fast}) < seconds({&slow, &slow}));
  // 16 KB one-shot between two: 10 us + 16384/25e9 + delta * 3 * 16384.
  const double reduce = 10e-6 + 16384 / 25e9 + 3 * 16384 / 1000e9;
  const double rank = 855638016.0 / 1000e9 + 855638016.0 / 100e12;
  CHECK(seconds({&slow, &slow}) == Approx(rank + 2 * reduce));
}

TEST_CASE("a norm over the full width of q and k is one small all-reduce more per layer") {
  const DeviceSpec device = Device("one", 80, 100, 1000);
  const ModelShape plain = Llama2_70B();
  ModelShape normed = plain;
  normed.kinds[0].summed_numbers = 2;
  const auto seconds = [&](const ModelShape& model, int width) {
    const std::vector<const DeviceSpec*> ranks(static_cast<size_t>(width), &device);
    return StageSeconds(model, Stage(ranks, 20, 1, 80), DecodeWork(1, 0));
  };
  CHECK(seconds(normed, 1) == seconds(plain, 1));
  // 8 bytes one-shot between two.
  const double reduce = 10e-6 + 8 / 25e9 + 3 * 8 / 1000e9;
  CHECK(seconds(normed, 2) == Approx(seconds(plain, 2) + reduce));
}

TEST_CASE("a hop pays for the leaders' link and the spread inside the next stage") {
  const ModelShape model = Llama2_70B();
  const LinkSpec link = Pcie();
  CHECK(HopSeconds(model, link, {{1, link, false}}, 10) == Approx(10e-6 + 163840 / 25e9));
  CHECK(HopSeconds(model, link, {{2, link, false}}, 10) == Approx(2 * (10e-6 + 163840 / 25e9)));
}

TEST_CASE("KV transfer: layers hide behind prefill, the codec is chosen by time") {
  LinkSpec slow;
  slow.bytes_per_second = 1e9;
  slow.latency_seconds = 0;
  const KvCodecRates rates = {20e9, 20e9, KvCodec::kInt4};
  CHECK(KvCodecRatio(KvCodec::kInt8, 2) == Approx(0.53125));
  CHECK(KvCodecRatio(KvCodec::kInt4, 2) == Approx(0.28125));
  // 1 s on the wire, 80 layers, 0.5 s of prefill: 1 - 79/80*0.5 remain.
  const KvTransfer raw = TransferKv({1e9}, slow, 80, 0.5, KvCodec::kRaw, rates);
  CHECK(raw.seconds == Approx(1));
  CHECK(raw.unhidden_seconds == Approx(1 - 0.49375));
  // With a long prefill one layer's share is left.
  CHECK(TransferKv({1e9}, slow, 80, 5, KvCodec::kRaw, rates).unhidden_seconds == Approx(1.0 / 80));
  CHECK(BestKvTransfer({1e9}, slow, 80, 0.1, rates).codec == KvCodec::kInt4);
  CHECK(BestKvTransfer({1e9}, slow, 80, 0.1, {}).codec == KvCodec::kInt8);  // unless allowed
  CHECK(BestKvTransfer({1e9}, slow, 80, 0.1, {20e9, 20e9, KvCodec::kRaw}).codec == KvCodec::kRaw);
  // A codec that was measured to be slower than the link is not taken.
  KvCodecRates measured;
  measured.Limit(0);
  CHECK(measured.encode_bytes_per_second == 20e9);
  measured.Limit(slow.bytes_per_second / 2);
  CHECK(BestKvTransfer({1e9}, slow, 80, 0.1, measured).codec == KvCodec::kRaw);
  LinkSpec fast = slow;
  fast.bytes_per_second = 50e9;
  CHECK(BestKvTransfer({1e9}, fast, 80, 0, rates).codec == KvCodec::kRaw);
}

TEST_CASE("KV takes as much of the wire whatever type it was held in") {
  LinkSpec slow;
  slow.bytes_per_second = 1e9;
  slow.latency_seconds = 0;
  // 1e9 elements of four bits, groups of 64 with 32 bits more: 4.5 bits each.
  for (const double element_bytes : {1.0, 2.0, 4.0}) {
    const KvTransfer transfer =
        TransferKv({1e9 * element_bytes, element_bytes}, slow, 80, 0, KvCodec::kInt4, {});
    CHECK(transfer.seconds == Approx(4.5 / 8));
  }
  // Eight bits and a group's scale are more than the eight bits that there are.
  CHECK(KvCodecRatio(KvCodec::kInt8, 1) == Approx(1.0625));
  CHECK(BestKvTransfer({1e9, 1}, slow, 80, 0, {20e9, 20e9, KvCodec::kInt4}).codec ==
        KvCodec::kInt4);
}

// --- The published case: 4 A6000, 2 A5000, 2 A4000, Llama-2-70B in fp16 ---

struct HexGenCase {
  ModelShape model = Llama2_70B();
  DeviceSpec a6000 = A6000(), a5000 = A5000(), a4000 = A4000();
  MemoryOptions options;

  HexGenCase() { options.max_step_tokens = 512; }

  std::vector<StageSpec> Asymmetric() const {
    return {Stage({&a6000, &a6000, &a6000, &a6000}, 0, 48, 80), Stage({&a5000, &a5000}, 48, 20, 80),
            Stage({&a4000, &a4000}, 68, 12, 80)};
  }
  std::vector<const DeviceSpec*> All() const {
    return {&a6000, &a6000, &a6000, &a6000, &a5000, &a5000, &a4000, &a4000};
  }
};

TEST_CASE("even tensor parallelism over all eight devices is refused, naming each A4000") {
  const HexGenCase c;
  std::vector<StageSpec> stages = {Stage(c.All(), 0, 80, 80)};
  stages[0].rank_names = {"a/0", "a/1", "a/2", "a/3", "b/0", "b/1", "c/0", "c/1"};
  CHECK(StageWeightBytes(c.model, stages[0]) / kGib == Approx(16.06).margin(0.005));
  const absl::Status status = CheckMemory(c.model, stages, c.options, 4096);
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  const std::string text(status.message());
  CHECK_THAT(text, Catch::Contains("c/0 (A4000)") && Catch::Contains("c/1 (A4000)"));
  CHECK_THAT(text, !Catch::Contains("A5000") && !Catch::Contains("A6000"));
  // 16.06 weights + 0.16 KV + activations 0.1 + reserve 1 against 14.4.
  CHECK_THAT(text, Catch::Contains("weights 16.06 GiB") && Catch::Contains("> 14.40 usable"));
  CHECK_THAT(text, Catch::Contains("GiB are missing"));
}

TEST_CASE("even pipeline parallelism is refused, with 15.94 GiB per inner stage") {
  const HexGenCase c;
  std::vector<StageSpec> stages;
  for (int i = 0; i < 8; ++i)
    stages.push_back(Stage({c.All()[static_cast<size_t>(i)]}, 10 * i, 10, 80));
  CHECK(StageWeightBytes(c.model, stages[6]) / kGib == Approx(15.94).margin(0.005));
  CHECK(StageWeightBytes(c.model, stages[7]) / kGib ==
        Approx(16.43).margin(0.005));  // with the head
  const std::string text(CheckMemory(c.model, stages, c.options, 4096).message());
  CHECK_THAT(text, Catch::Contains("stage 6, A4000") && Catch::Contains("stage 7, A4000"));
  CHECK_THAT(text, !Catch::Contains("A5000"));
}

TEST_CASE("widths 4, 2, 2 with 48, 20, 12 layers fit, and the A5000 stage limits the KV") {
  HexGenCase c;
  const std::vector<StageSpec> stages = c.Asymmetric();
  CHECK(CheckMemory(c.model, stages, c.options, 4096).ok());
  const KvCapacity room = KvCapacityOf(c.model, stages, c.options);
  CHECK(room.limiting_stage == 1);
  CHECK(std::isinf(room.seats));
  CHECK(room.tokens == Approx(124000).epsilon(0.04));  // steps of 512 rows cost 0.1 GiB of it
  // By hand, nothing but weights and the reserve: (24 * 0.9 - 1 - 15.9375) GiB / 40960 B.
  c.options.max_step_tokens = 0;
  CHECK(KvCapacityOf(c.model, stages, c.options).tokens == 122224);
  c.options.runtime_reserve_bytes = 1e9;  // the published figure counts a GB, not a GiB
  CHECK(KvCapacityOf(c.model, stages, c.options).tokens == 124024);
}

}  // namespace
}  // namespace tessera::scheduler

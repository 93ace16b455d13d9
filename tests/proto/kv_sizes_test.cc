#include "proto/layers/kv_sizes.h"

#include <catch2/catch.hpp>

#include "proto/layers/layers.h"

namespace tessera {
namespace {

constexpr int64_t kBlockTokens = 64;

// `windowed` layers with a window, then one that sees everything, and so on.
v1::Model Layers(int64_t layers, int64_t windowed, int64_t window, int64_t heads,
                 int64_t kv_heads) {
  v1::Model model;
  model.set_hidden(5376);
  v1::LayerKind kind;
  kind.mutable_ffn()->set_width(21504);
  kind.mutable_attention()->set_heads(static_cast<int32_t>(heads));
  kind.mutable_attention()->set_kv_heads(static_cast<int32_t>(kv_heads));
  kind.mutable_attention()->set_head_dim(128);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const bool sees_all = layer % (windowed + 1) == windowed;
    kind.mutable_attention()->set_window(sees_all ? 0 : static_cast<int32_t>(window));
    AppendLayers(kind, 1, &model);
  }
  return model;
}

v1::WorkerShare Whole(const v1::Model& model, int64_t first, int64_t end) {
  v1::WorkerShare share;
  share.mutable_layers()->set_begin(first);
  share.mutable_layers()->set_end(end);
  for (const v1::LayerKind& kind : model.kinds()) {
    v1::LayerShare* of_kind = share.add_kinds();
    of_kind->mutable_query_heads()->set_end(kind.attention().heads());
    of_kind->mutable_kv_heads()->set_end(kind.attention().kv_heads());
    of_kind->mutable_key_groups()->set_end(kind.delta().key_heads());
  }
  return share;
}

TEST_CASE("Gemma 3 27B at 131k tokens: the KV of its 10 layers that see all, and windows") {
  // 62 layers, every sixth of which sees everything; windows of 1024; 32 heads, 16 kv heads.
  const v1::Model model = Layers(62, 5, 1024, 32, 16);
  const KvLimits limits = {kBlockTokens, LongestWindow(model), 131072, 8, 2048};
  REQUIRE(limits.window_tokens == 1024);
  const v1::WorkerShare share = Whole(model, 0, 62);
  const KvBlockBytes block = BlockBytesOf(model, share, 2, kBlockTokens, true);
  const int64_t layer_bytes = int64_t{2} * 16 * 128 * 2;  // of a token
  CHECK(block.common == 10 * layer_bytes * kBlockTokens);
  CHECK(block.window == 52 * layer_bytes * kBlockTokens);
  const int64_t bytes = SequenceKvBytes(131072, block, limits);
  CHECK(bytes >= 10 * layer_bytes * 131072 + 52 * layer_bytes * 1024);
  CHECK(bytes <= 10 * layer_bytes * 131072 + 52 * layer_bytes * (1024 + 2 * kBlockTokens));
  // Not apart, it is 62 layers of everything: more than five times as much.
  const KvBlockBytes together = BlockBytesOf(model, share, 2, kBlockTokens, false);
  CHECK(together.window == 0);
  CHECK(SequenceKvBytes(131072, together, limits) == 62 * layer_bytes * 131072);

  // 13 GiB are enough for one sequence of full length, and for the windows of some beside it.
  const KvBlocks cut = CutKv(int64_t{13} << 30, block, limits);
  CHECK(cut.common * kBlockTokens >= 131072);
  CHECK(cut.window >= WindowBlocksFor(2, limits));
  // A window is kept for prompts to come, if only one sequence runs, and is no part of what it
  // needs.
  const KvLimits alone = {kBlockTokens, 1024, 131072, 1, 2048};
  CHECK(CutKv(int64_t{13} << 30, block, alone).window == WindowBlocksFor(1 + kKeptWindows, alone));
  CHECK(MaxUsefulWindowBlocks(alone) == WindowBlocksFor(1 + kKeptWindows, alone));
  CHECK(CutKv(bytes + 2048 / kBlockTokens * block.window, block, alone).window ==
        WindowBlocksFor(1, alone));
}

// Qwen3.6-27B: three gated delta nets, then a layer that attends, and so on.
v1::Model Qwen27B() {
  v1::Model model;
  model.set_hidden(5120);
  v1::LayerKind attends, delta;
  attends.mutable_ffn()->set_width(17408);
  delta = attends;
  attends.mutable_attention()->set_heads(24);
  attends.mutable_attention()->set_kv_heads(4);
  attends.mutable_attention()->set_head_dim(256);
  delta.mutable_delta()->set_key_heads(16);
  delta.mutable_delta()->set_value_heads(48);
  delta.mutable_delta()->set_key_dim(128);
  delta.mutable_delta()->set_value_dim(128);
  delta.mutable_delta()->set_conv_taps(4);
  for (int64_t layer = 0; layer < 64; layer += 4) {
    AppendLayers(delta, 3, &model);
    AppendLayers(attends, 1, &model);
  }
  return model;
}

TEST_CASE("Qwen3.6-27B: a seat is as much as 2,400 tokens, and is counted first") {
  const v1::Model model = Qwen27B();
  REQUIRE(CheckLayers(model).ok());
  CHECK(KeepsStates(model));
  CHECK(KvHeadDim(model) == 256);
  const v1::WorkerShare share = Whole(model, 0, 64);
  CHECK(KvHeads(share).end() == 4);
  const KvBlockBytes block = BlockBytesOf(model, share, 2, kBlockTokens, false);
  CHECK(block.common == int64_t{64} * 1024 * kBlockTokens);
  CHECK(block.seat == int64_t{48} * 4 * (48 * 128 * 128 + 3 * 10240));  // 150 MiB
  const KvLimits limits = {kBlockTokens, 0, 131072, 16, 2048};
  CHECK(SequenceKvBytes(131072, block, limits) == 2048 * block.common + block.seat);
  // A sequence of full length, or as many as have 2,048 tokens each.
  for (const int64_t gib : {9, 12, 20, 64}) {
    const int64_t bytes = gib << 30;
    const KvBlocks cut = CutKv(bytes, block, limits);
    INFO(gib << " GiB: " << cut.common << " blocks, " << cut.seats << " seats");
    CHECK(BytesOf(cut, block) <= bytes);
    CHECK(BytesOf(cut, block) > bytes - block.common);
    CHECK(cut.seats >= 1);
    CHECK(cut.seats <= limits.max_sequences);
    CHECK(cut.common >= 2048);
    CHECK(cut.common * kBlockTokens >= cut.seats * kTypicalTokens);
  }
  CHECK(CutKv(int64_t{64} << 30, block, limits).seats == limits.max_sequences);
  // A pool without room for a sequence of full length is cut for many shorter ones.
  const KvBlocks small = CutKv(int64_t{4} << 30, block, limits);
  CHECK(small.seats == 14);
  CHECK(small.common * kBlockTokens >= small.seats * kTypicalTokens);
  CHECK(CutKv(block.seat + block.common - 1, block, limits) == KvBlocks(0));
  // A stage whose layers all keep states has no bytes for blocks, and any number of them.
  const KvBlockBytes stage = BlockBytesOf(model, Whole(model, 0, 3), 2, kBlockTokens, false);
  CHECK(stage.common == 0);
  CHECK(CutKv(4 * stage.seat, stage, limits) == KvBlocks(4 * 2048, 0, 4));
}

TEST_CASE("a pool is cut within its bytes, for the longest sequence first and then for more") {
  const v1::Model model = Layers(12, 3, 200, 8, 2);
  const KvLimits limits = {16, 200, 4096, 64, 256};
  const KvBlockBytes block = BlockBytesOf(model, Whole(model, 0, 12), 2, 16, true);
  KvBlocks before = 0;
  const int64_t most = MaxUsefulKvBytes(block, limits);
  for (int64_t bytes = 0; bytes <= most; bytes += most / 97) {
    CAPTURE(bytes);
    const KvBlocks cut = CutKv(bytes, block, limits);
    CHECK(cut.common * block.common + cut.window * block.window <= bytes);
    const bool holds_longest = cut.common * 16 >= limits.max_sequence_tokens;
    if (cut.window < WindowBlocksFor(1, limits)) {
      CHECK(cut.window == cut.common);
      CHECK(bytes < WindowBlocksFor(1, limits) * block.window + block.common);
    } else if (cut.window > WindowBlocksFor(1, limits)) {  // with what sequences have beside it
      const int64_t windows = (cut.window - 256 / 16) / WindowBlocksOf(200, 16);
      CHECK(cut.window == WindowBlocksFor(windows, limits));
      CHECK(cut.common * 16 >= (windows - kKeptWindows) * kTypicalWindows * 200);
    }
    if (!holds_longest) {  // it would not, whatever its windows were
      CHECK(bytes < SequenceKvBytes(limits.max_sequence_tokens, block, limits) + 16 * block.window);
    } else if (before.common * 16 >= limits.max_sequence_tokens) {
      CHECK(cut.window >= before.window);
      if (cut.window == before.window) CHECK(cut.common >= before.common);
    }
    before = cut;
  }
  CHECK(CutKv(most, block, limits) ==
        KvBlocks(limits.max_sequences * limits.max_sequence_tokens / 16,
                 MaxUsefulWindowBlocks(limits)));
}

TEST_CASE("where all layers have a window, common blocks are ids without bytes") {
  const v1::Model model = Layers(4, 4, 200, 8, 2);
  const KvLimits limits = {16, 200, 4096, 8, 256};
  const KvBlockBytes block = BlockBytesOf(model, Whole(model, 0, 4), 2, 16, true);
  CHECK(block.common == 0);
  CHECK(CutKv(1 << 28, block, limits) == KvBlocks(8 * 4096 / 16, MaxUsefulWindowBlocks(limits)));
}

TEST_CASE(
    "bytes are those of the layers and heads that a rank holds; short contexts save nothing") {
  const v1::Model model = Layers(12, 5, 200, 8, 2);
  const KvBlockBytes stage = BlockBytesOf(model, Whole(model, 4, 7), 4, 16, true);
  CHECK(stage.common == 16 * 2 * 2 * 128 * 4);      // layer 5
  CHECK(stage.window == 2 * 16 * 2 * 2 * 128 * 4);  // layers 4 and 6
  CHECK_FALSE(MaySaveWindows({16, 200, 200, 8, 256}));
  CHECK(MaySaveWindows({16, 200, 201, 8, 256}));
  CHECK_FALSE(MaySaveWindows({16, 0, 4096, 8, 256}));
}

TEST_CASE("a latent is kept once for all heads, on every rank of a stage") {
  v1::Model model = Layers(61, 61, 0, 8, 1);
  v1::Attention& attention = *model.mutable_kinds(0)->mutable_attention();
  attention.set_head_dim(576);
  attention.mutable_rope()->set_rotary_dim(64);
  attention.mutable_latent()->set_rank(512);
  v1::WorkerShare share = Whole(model, 0, 61);
  CHECK(BlockBytesOf(model, share, 2, 1, false).common == 576 * 61 * 2);
  share.mutable_kinds(0)->mutable_query_heads()->set_end(3);
  CHECK(BlockBytesOf(model, share, 2, 16, false).common == 16 * 576 * 61 * 2);
}

}  // namespace
}  // namespace tessera

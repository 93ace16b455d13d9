// The models that are known by name, with the figures of their config.json: what a plan is made of.
#include <catch2/catch.hpp>
#include <string>

#include "scheduler/cost/model_shape.h"
#include "scheduler/input/catalogue.h"

namespace tessera::scheduler {
namespace {

struct Known {
  const char* name;
  int layers, hidden, heads, kv_heads, ffn;
};

// ffn: of one expert where there are experts.
constexpr Known kKnown[] = {
    {"Llama-2-7B", 32, 4096, 32, 32, 11008}, {"Llama-2-13B", 40, 5120, 40, 40, 13824},
    {"Llama-2-70B", 80, 8192, 64, 8, 28672}, {"LLaMA-30B", 60, 6656, 52, 52, 17920},
    {"Llama-3-8B", 32, 4096, 32, 8, 14336},  {"Llama-3-70B", 80, 8192, 64, 8, 28672},
    {"OPT-13B", 40, 5120, 40, 40, 20480},    {"OPT-30B", 48, 7168, 56, 56, 28672},
    {"OPT-66B", 64, 9216, 72, 72, 36864},    {"Qwen2.5-0.5B", 24, 896, 14, 2, 4864},
    {"Qwen2.5-7B", 28, 3584, 28, 4, 18944},  {"Qwen2.5-14B", 48, 5120, 40, 8, 13824},
    {"Qwen2.5-32B", 64, 5120, 40, 8, 27648}, {"Qwen2.5-72B", 80, 8192, 64, 8, 29568},
    {"Qwen3-0.6B", 28, 1024, 16, 8, 3072},   {"Qwen3-8B", 36, 4096, 32, 8, 12288},
    {"Qwen3-32B", 64, 5120, 64, 8, 25600},   {"Qwen3-30B-A3B", 48, 2048, 32, 4, 768},
    {"Mixtral-8x7B", 32, 4096, 32, 8, 14336}};

TEST_CASE("the models that people name are there, as their config.json has them") {
  for (const Known& known : kKnown) {
    INFO(known.name);
    const auto model = BuiltInModel(known.name);
    REQUIRE(model.status().message() == "");
    const auto shape = MakeModelShape(*model);
    REQUIRE(shape.status().message() == "");
    CHECK(shape->layers == known.layers);
    CHECK(shape->hidden == known.hidden);
    REQUIRE(shape->uniform());
    const LayerShape& layer = shape->layer(0);
    CHECK(layer.heads == known.heads);
    CHECK(layer.kv_heads == known.kv_heads);
    CHECK((layer.experts > 0 ? layer.expert_width : layer.ffn_width) == known.ffn);
  }
}

TEST_CASE("heads for further tokens are layers that attend, behind the model's") {
  for (const char* name :
       {"Qwen3.5-27B", "Qwen3.6-27B", "Qwen3.6-35B-A3B", "DeepSeek-V3", "GLM-4.5-Air", "GLM-4.7"}) {
    INFO(name);
    v1::Model model = *BuiltInModel(name);
    REQUIRE(model.has_draft_head());
    CHECK_FALSE(model.draft_head().used());
    CHECK(model.draft_head().layer() == MakeModelShape(model)->layers);
    model.mutable_draft_head()->set_used(true);
    const ModelShape shape = *MakeModelShape(model);
    REQUIRE(shape.draft_kind >= 0);
    CHECK(shape.kinds[static_cast<size_t>(shape.draft_kind)].heads > 0);
    CHECK(shape.draft_kind == shape.kind_index(shape.layers - 1));
  }
  CHECK_FALSE(BuiltInModel("Llama-3-8B")->has_draft_head());
}

}  // namespace
}  // namespace tessera::scheduler

#include "proto/model/families/families.h"

#include <array>

namespace tessera {

// Defined in the file of that name.
extern const Family kAfmoe;
extern const Family kArcee;
extern const Family kCohere;
extern const Family kCohere2;
extern const Family kDeepseekV2;
extern const Family kDeepseekV3;
extern const Family kDots1;
extern const Family kErnie45;
extern const Family kErnie45Moe;
extern const Family kExaone4;
extern const Family kExaone45Wrapped;
extern const Family kExaoneMoe;
extern const Family kGemma;
extern const Family kGemma2;
extern const Family kGemma3;
extern const Family kGemma3Wrapped;
extern const Family kGemma4;
extern const Family kGemma4Unified;
extern const Family kGemma4Wrapped;
extern const Family kGlm4;
extern const Family kGlm4Moe;
extern const Family kGlm4MoeLite;
extern const Family kGlm4vWrapped;
extern const Family kGlm4vMoeWrapped;
extern const Family kGptNeoX;
extern const Family kGptOss;
extern const Family kGranite;
extern const Family kGraniteMoe;
extern const Family kGraniteMoeHybrid;
extern const Family kHunyuanDense;
extern const Family kHunyuanMoe;
extern const Family kHyV3;
extern const Family kKimiK25Wrapped;
extern const Family kLlama;
extern const Family kLlama4;
extern const Family kLlama4Wrapped;
extern const Family kMellum;
extern const Family kMiniMaxM2;
extern const Family kMinistral3;
extern const Family kMistral;
extern const Family kMistral3Wrapped;
extern const Family kMistral4;
extern const Family kMixtral;
extern const Family kNemotron;
extern const Family kOlmo2;
extern const Family kOlmo3;
extern const Family kOlmoe;
extern const Family kOpt;
extern const Family kPhi3;
extern const Family kPhimoe;
extern const Family kQwen2;
extern const Family kQwen25VlWrapped;
extern const Family kQwen2Moe;
extern const Family kQwen3;
extern const Family kQwen3Moe;
extern const Family kQwen35;
extern const Family kQwen35Moe;
extern const Family kQwen35MoeWrapped;
extern const Family kQwen35Wrapped;
extern const Family kQwen3Next;
extern const Family kQwen3VlWrapped;
extern const Family kQwen3VlMoeWrapped;
extern const Family kSeedOss;
extern const Family kSmolLm3;
extern const Family kSolarOpen;
extern const Family kStableLm;
extern const Family kStarcoder2;

namespace {

constexpr std::array kFamilies = {&kAfmoe,
                                  &kArcee,
                                  &kCohere2,
                                  &kCohere,
                                  &kDeepseekV2,
                                  &kDeepseekV3,
                                  &kDots1,
                                  &kErnie45,
                                  &kErnie45Moe,
                                  &kExaone4,
                                  &kExaone45Wrapped,
                                  &kExaoneMoe,
                                  &kGptNeoX,
                                  &kGemma2,
                                  &kGemma3,
                                  &kGemma3Wrapped,
                                  &kGemma4,
                                  &kGemma4Wrapped,
                                  &kGemma4Unified,
                                  &kGemma,
                                  &kGlm4,
                                  &kGlm4Moe,
                                  &kGlm4MoeLite,
                                  &kGlm4vWrapped,
                                  &kGlm4vMoeWrapped,
                                  &kGptOss,
                                  &kGranite,
                                  &kGraniteMoe,
                                  &kGraniteMoeHybrid,
                                  &kHunyuanDense,
                                  &kHunyuanMoe,
                                  &kHyV3,
                                  &kKimiK25Wrapped,
                                  &kLlama4,
                                  &kLlama4Wrapped,
                                  &kLlama,
                                  &kMellum,
                                  &kMiniMaxM2,
                                  &kMinistral3,
                                  &kMistral3Wrapped,
                                  &kMistral4,
                                  &kMistral,
                                  &kMixtral,
                                  &kNemotron,
                                  &kOpt,
                                  &kOlmo2,
                                  &kOlmo3,
                                  &kOlmoe,
                                  &kPhi3,
                                  &kPhimoe,
                                  &kQwen2,
                                  &kQwen2Moe,
                                  &kQwen25VlWrapped,
                                  &kQwen3,
                                  &kQwen3Moe,
                                  &kQwen35,
                                  &kQwen35Moe,
                                  &kQwen35MoeWrapped,
                                  &kQwen35Wrapped,
                                  &kQwen3Next,
                                  &kQwen3VlWrapped,
                                  &kQwen3VlMoeWrapped,
                                  &kSeedOss,
                                  &kSmolLm3,
                                  &kSolarOpen,
                                  &kStableLm,
                                  &kStarcoder2};

}  // namespace

absl::Span<const Family* const> Families() { return kFamilies; }

const Family* FindFamily(std::string_view architecture) {
  if (architecture.empty()) return nullptr;
  for (const Family* family : kFamilies) {
    if (family->architecture == architecture || family->published_as == architecture) {
      return family;
    }
  }
  return nullptr;
}

const Family* FindGgufFamily(std::string_view architecture, bool with_experts) {
  if (architecture.empty()) return nullptr;
  for (const Family* family : kFamilies) {
    const GgufFacts& facts = family->gguf;
    if (facts.architecture != architecture && facts.with_images != architecture) continue;
    if (facts.with_experts == with_experts || facts.without_experts_too) return family;
  }
  return nullptr;
}

}  // namespace tessera

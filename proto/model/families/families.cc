#include "proto/model/families/families.h"

#include <array>

namespace tessera {

// Defined in the file of that name.
extern const Family kErnie45;
extern const Family kErnie45Moe;
extern const Family kExaone4;
extern const Family kGlm4;
extern const Family kGlm4Moe;
extern const Family kGptNeoX;
extern const Family kLlama;
extern const Family kMistral;
extern const Family kMixtral;
extern const Family kOpt;
extern const Family kPhi3;
extern const Family kQwen2;
extern const Family kQwen2Moe;
extern const Family kQwen3;
extern const Family kQwen3Moe;
extern const Family kSeedOss;
extern const Family kSmolLm3;
extern const Family kStableLm;
extern const Family kStarcoder2;

namespace {

constexpr std::array kFamilies = {&kErnie45, &kErnie45Moe, &kExaone4,  &kGptNeoX,   &kGlm4,
                                  &kGlm4Moe, &kLlama,      &kMistral,  &kMixtral,   &kOpt,
                                  &kPhi3,    &kQwen2,      &kQwen2Moe, &kQwen3,     &kQwen3Moe,
                                  &kSeedOss, &kSmolLm3,    &kStableLm, &kStarcoder2};

}  // namespace

absl::Span<const Family* const> Families() { return kFamilies; }

const Family* FindFamily(std::string_view architecture) {
  for (const Family* family : kFamilies) {
    if (family->architecture == architecture) return family;
  }
  return nullptr;
}

}  // namespace tessera

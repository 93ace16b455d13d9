#include "proto/model/families/families.h"

#include <array>

namespace tessera {

// Defined in the file of that name.
extern const Family kErnie45;
extern const Family kExaone4;
extern const Family kGlm4;
extern const Family kGptNeoX;
extern const Family kLlama;
extern const Family kMistral;
extern const Family kMixtral;
extern const Family kOpt;
extern const Family kPhi3;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kQwen3Moe;
extern const Family kSeedOss;
extern const Family kSmolLm3;
extern const Family kStableLm;
extern const Family kStarcoder2;

namespace {

constexpr std::array kFamilies = {
    &kLlama,   &kMistral, &kQwen2,   &kQwen3, &kOpt,     &kMixtral, &kQwen3Moe, &kErnie45,
    &kExaone4, &kGlm4,    &kGptNeoX, &kPhi3,  &kSeedOss, &kSmolLm3, &kStableLm, &kStarcoder2};

}  // namespace

absl::Span<const Family* const> Families() { return kFamilies; }

const Family* FindFamily(std::string_view architecture) {
  for (const Family* family : kFamilies) {
    if (family->architecture == architecture) return family;
  }
  return nullptr;
}

}  // namespace tessera

#include "proto/model/families/families.h"

#include <array>

namespace tessera {

// Defined in the file of that name.
extern const Family kLlama;
extern const Family kMistral;
extern const Family kMixtral;
extern const Family kOpt;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kQwen3Moe;

namespace {

constexpr std::array kFamilies = {&kLlama, &kMistral, &kQwen2,   &kQwen3,
                                  &kOpt,   &kMixtral, &kQwen3Moe};

}  // namespace

absl::Span<const Family* const> Families() { return kFamilies; }

const Family* FindFamily(std::string_view architecture) {
  for (const Family* family : kFamilies) {
    if (family->architecture == architecture) return family;
  }
  return nullptr;
}

}  // namespace tessera

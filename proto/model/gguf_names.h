// Which tensor of a family each tensor of a GGUF file is.
//
// Names of GGUF: gguf-py/gguf/constants.py of llama.cpp. Pure, thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "proto/model/families/family.h"

namespace tessera {

// How a family's tensors are named and stored in GGUF: norms as they multiply, q, k and v of one
// matrix one below the other, matrices of experts apart, value heads of delta nets by turns, a
// latent's keys and values apart.
TensorNames NamesInGguf(const TensorNames& names);

// A tensor of GGUF as a tensor of the family.
struct GgufPlace {
  std::string name;  // "": it has no place
  // [experts, outputs, inputs], one tensor an expert in the family, whose number goes where the
  // name has kGgufExpertMark.
  bool of_experts = false;
  // The shape that the family's tensor has, where a size of 1 may differ, or the heads of a matrix
  // are apart; 0: the same.
  size_t dimensions = 0;
  std::string second = {};  // the lower half of each expert's outputs; "": all are of the first
};
inline constexpr std::string_view kGgufExpertMark = "<expert>";

// `name` as "blk.3.ffn_up.weight".
GgufPlace PlaceInFamily(const Family& family, std::string_view name);

}  // namespace tessera

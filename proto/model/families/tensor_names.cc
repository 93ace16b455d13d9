#include "proto/model/families/tensor_names.h"

#include "third_party/absl/str_cat.h"

namespace tessera {

std::string_view RootOf(const TensorNames& names,
                        const std::function<bool(const std::string&)>& has) {
  const bool second = !has(StrCat(names.roots[0], names.embedding, ".weight")) &&
                      has(StrCat(names.roots[1], names.embedding, ".weight"));
  return names.roots[second ? 1 : 0];
}

std::string_view HeadOf(const TensorNames& names,
                        const std::function<bool(const std::string&)>& has) {
  const bool other = !names.other_head.empty() && !has(StrCat(names.head, ".weight"));
  return other ? names.other_head : names.head;
}

}  // namespace tessera

#include "proto/model/families/tensor_names.h"

#include "third_party/absl/str_cat.h"

namespace tessera {

std::string_view RootOf(const TensorNames& names,
                        const std::function<bool(const std::string&)>& has) {
  for (const std::string_view root : names.roots) {
    if (has(StrCat(root, names.embedding, ".weight"))) return root;
  }
  return names.roots[0];
}

std::string_view HeadOf(const TensorNames& names,
                        const std::function<bool(const std::string&)>& has) {
  const bool other = !names.other_head.empty() && !has(StrCat(names.head, ".weight"));
  return other ? names.other_head : names.head;
}

}  // namespace tessera

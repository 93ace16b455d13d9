#include "kernels/argument_check.h"

#include <algorithm>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kWorkspaceAlignment = 64;

bool ShapeFits(const TensorView& view, std::initializer_list<int64_t> shape) {
  if (view.rank != static_cast<int>(shape.size())) return false;
  int i = 0;
  for (int64_t size : shape) {
    const int64_t have = view.shape[i++];
    if (have < 0 || (size != kAnySize && have != size)) return false;
  }
  return true;
}

std::string DescribeShape(std::initializer_list<int64_t> shape) {
  std::string text;
  for (int64_t size : shape) {
    text += StrCat(text.empty() ? "" : ", ", size == kAnySize ? std::string("*") : StrCat(size));
  }
  return StrCat("[", text, "]");
}

std::string DescribeTypes(std::initializer_list<DType> types) {
  std::string text;
  for (DType type : types) text += StrCat(text.empty() ? "" : "|", Name(type));
  return text;
}

}  // namespace

std::string DescribeTensor(const TensorView& view) {
  if (view.empty()) return "empty";
  std::string text;
  for (int i = 0; i < view.rank; ++i) text += StrCat(i == 0 ? "" : ", ", view.shape[i]);
  return StrCat("[", text, "] ", Name(view.dtype));
}

ArgumentCheck& ArgumentCheck::Tensor(const char* name, const TensorView& view,
                                     std::initializer_list<DType> types,
                                     std::initializer_list<int64_t> shape, Stride stride) {
  if (!status_.ok()) return *this;
  const bool type_fits = std::find(types.begin(), types.end(), view.dtype) != types.end();
  const bool has_data = !view.empty() || view.Elements() == 0;
  if (!type_fits || !has_data || !ShapeFits(view, shape)) {
    Fail(name, StrCat("is ", view.empty() && view.rank != 0 ? "without memory, " : "",
                      DescribeTensor(view), "; must be ", DescribeShape(shape), " ",
                      DescribeTypes(types)));
  } else if (stride == Stride::kDense && view.rows() > 1 && !view.IsDense()) {
    Fail(name, StrCat("has a row stride of ", view.row_stride, " elements; must be dense"));
  } else if (view.rows() > 1 && view.row_stride < view.RowElements()) {
    Fail(name, StrCat("has a row stride of ", view.row_stride, " elements, less than a row of ",
                      view.RowElements()));
  }
  return *this;
}

ArgumentCheck& ArgumentCheck::Optional(const char* name, const TensorView& view,
                                       std::initializer_list<DType> types,
                                       std::initializer_list<int64_t> shape, Stride stride) {
  return view.empty() ? *this : Tensor(name, view, types, shape, stride);
}

ArgumentCheck& ArgumentCheck::Workspace(const TensorView& view, int64_t need_bytes) {
  if (!status_.ok() || need_bytes == 0) return *this;
  const int64_t have = view.empty() ? 0 : view.Elements() * SizeInBytes(view.dtype);
  if (have < need_bytes) {
    Fail("workspace", StrCat("has ", have, " bytes; must have ", need_bytes));
  } else if (reinterpret_cast<uintptr_t>(view.data) % kWorkspaceAlignment != 0) {
    Fail("workspace", StrCat("must be aligned to ", kWorkspaceAlignment, " bytes"));
  }
  return *this;
}

ArgumentCheck& ArgumentCheck::That(bool fits, const char* name, const char* must) {
  if (status_.ok() && !fits) Fail(name, StrCat("must ", must));
  return *this;
}

void ArgumentCheck::Fail(const char* name, const std::string& reason) {
  status_ = absl::InvalidArgumentError(StrCat(op_, ": ", name, " ", reason));
}

}  // namespace tessera::kernels

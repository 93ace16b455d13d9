#include "tests/kernels/cuda/driver/fake_blas.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>

#include "kernels/half_floats.h"

namespace tessera::kernels::cuda {

// What the library keeps behind its handles.
struct BlasContext {};
struct BlasPreferenceDescriptor {
  uint32_t alignments[4] = {256, 256, 256, 256};  // of A to D, where none is set
};
struct BlasProductDescriptor {
  int32_t transpose_a = 0, epilogue = 1;
  const float* bias = nullptr;
};
struct BlasLayoutDescriptor {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t leading_dimension = 0;
};

}  // namespace tessera::kernels::cuda

namespace tessera::tests {
namespace {

using namespace kernels::cuda;  // NOLINT: a fake of all of it

constexpr BlasStatus kInvalidValue = 7, kNotSupported = 15;
constexpr uint64_t kAlgorithm = 42;

FakeBlas* fake = nullptr;

template <typename T, typename... Values>
BlasStatus Make(T** made, Values... values) {
  ++fake->alive;
  *made = new T{values...};
  return kBlasSuccess;
}

template <typename T>
BlasStatus Drop(T* made) {
  --fake->alive;
  delete made;
  return kBlasSuccess;
}

float Load(const void* data, int type, int64_t at) {
  switch (type) {
    case kBlasFloat16: return ToFloat(static_cast<const kernels::Float16*>(data)[at]);
    case kBlasBFloat16: return ToFloat(static_cast<const kernels::BFloat16*>(data)[at]);
    default: return static_cast<const float*>(data)[at];
  }
}

void Save(void* data, int type, int64_t at, float value) {
  switch (type) {
    case kBlasFloat16:
      static_cast<kernels::Float16*>(data)[at] = kernels::FromFloat<kernels::Float16>(value);
      break;
    case kBlasBFloat16:
      static_cast<kernels::BFloat16*>(data)[at] = kernels::FromFloat<kernels::BFloat16>(value);
      break;
    default: static_cast<float*>(data)[at] = value;
  }
}

BlasStatus Multiply(BlasHandle handle, BlasProduct product, const void* alpha, const void* a,
                    BlasLayout a_layout, const void* b, BlasLayout b_layout, const void* beta,
                    const void* c, BlasLayout, void* d, BlasLayout d_layout,
                    const BlasAlgorithm* algorithm, void* workspace, size_t workspace_bytes,
                    BlasStream) {
  ++fake->products;
  if (fake->multiply_error != 0) return fake->multiply_error;
  const bool right = handle != nullptr && product->transpose_a == kBlasTransposed &&
                     *static_cast<const float*>(alpha) == 1 &&
                     *static_cast<const float*>(beta) == 0 && algorithm->data[0] == kAlgorithm &&
                     a_layout->columns == d_layout->rows &&
                     b_layout->columns == d_layout->columns && a_layout->rows == b_layout->rows &&
                     (product->epilogue == kBlasEpilogueBias) == (product->bias != nullptr) &&
                     static_cast<int64_t>(workspace_bytes) >= fake->workspace_bytes &&
                     reinterpret_cast<uintptr_t>(workspace) % 256 == 0;
  if (!right) return kInvalidValue;
  const auto aligned = [](const void* matrix, uint64_t alignment) {
    return reinterpret_cast<uintptr_t>(matrix) % alignment == 0;
  };
  const uint64_t* const alignments = &algorithm->data[2];
  if (!aligned(a, alignments[0]) || !aligned(b, alignments[1]) || !aligned(c, alignments[2]) ||
      !aligned(d, alignments[3])) {
    return kNotSupported;
  }
  if (fake->on_product) fake->on_product(static_cast<int>(algorithm->data[1]));
  std::memset(workspace, 0xff, workspace_bytes);  // it is the library's
  for (uint64_t column = 0; column < d_layout->columns; ++column) {
    for (uint64_t row = 0; row < d_layout->rows; ++row) {
      float sum = product->bias == nullptr ? 0 : product->bias[row];
      for (uint64_t k = 0; k < a_layout->rows; ++k) {
        sum += Load(a, a_layout->type, row * a_layout->leading_dimension + k) *
               Load(b, b_layout->type, column * b_layout->leading_dimension + k);
      }
      Save(d, d_layout->type, column * d_layout->leading_dimension + row, sum);
    }
  }
  return kBlasSuccess;
}

BlasStatus SetProduct(BlasProduct product, int attribute, const void* value, size_t size_bytes) {
  const auto set = [&](auto& field) {
    if (size_bytes != sizeof field) return kInvalidValue;
    std::memcpy(&field, value, size_bytes);
    return kBlasSuccess;
  };
  switch (attribute) {
    case kBlasProductTransposeA: return set(product->transpose_a);
    case kBlasProductEpilogue: return set(product->epilogue);
    case kBlasProductBiasPointer: return set(product->bias);
    default: return kInvalidValue;
  }
}

BlasStatus SetLayout(BlasLayout layout, int attribute, const void* value, size_t size_bytes) {
  if (size_bytes != 8) return kInvalidValue;
  void* const field = attribute == kBlasLayoutColumns ? static_cast<void*>(&layout->columns)
                      : attribute == kBlasLayoutLeadingDimension
                          ? static_cast<void*>(&layout->leading_dimension)
                          : nullptr;
  if (field == nullptr) return kInvalidValue;
  std::memcpy(field, value, size_bytes);
  return kBlasSuccess;
}

BlasStatus Suggest(BlasHandle, BlasProduct, BlasLayout, BlasLayout, BlasLayout, BlasLayout,
                   BlasPreference preference, int wanted, BlasSuggestion* suggestions, int* found) {
  ++fake->suggestions;
  *found = fake->suggests ? std::min(wanted, fake->most_suggestions) : 0;
  for (int i = 0; i < *found; ++i) {
    suggestions[i] = {};
    suggestions[i].algorithm.data[0] = kAlgorithm;
    suggestions[i].algorithm.data[1] = static_cast<uint64_t>(i);
    std::copy(std::begin(preference->alignments), std::end(preference->alignments),
              &suggestions[i].algorithm.data[2]);
    suggestions[i].workspace_bytes = static_cast<size_t>(fake->workspace_bytes);
  }
  return kBlasSuccess;
}

}  // namespace

BlasTable TableOf(FakeBlas* described) {
  fake = described;
  BlasTable table;
  table.GetVersion = [] { return size_t{130100}; };
  table.Create = [](BlasHandle* handle) {
    return fake->create_error != 0 ? fake->create_error : Make(handle);
  };
  table.Destroy = [](BlasHandle handle) { return Drop(handle); };
  table.ProductCreate = [](BlasProduct* product, int compute, int scale) {
    if (compute != kBlasComputeFloat32 || scale != kBlasFloat32) return kInvalidValue;
    return Make(product);
  };
  table.ProductDestroy = [](BlasProduct product) { return Drop(product); };
  table.ProductSet = &SetProduct;
  table.LayoutCreate = [](BlasLayout* layout, int type, uint64_t rows, uint64_t columns,
                          int64_t leading_dimension) {
    return Make(layout, type, rows, columns, leading_dimension);
  };
  table.LayoutDestroy = [](BlasLayout layout) { return Drop(layout); };
  table.LayoutSet = &SetLayout;
  table.PreferenceCreate = [](BlasPreference* preference) { return Make(preference); };
  table.PreferenceDestroy = [](BlasPreference preference) { return Drop(preference); };
  table.PreferenceSet = [](BlasPreference preference, int attribute, const void* value,
                           size_t size_bytes) {
    if (attribute == kBlasPreferenceWorkspaceBytes) {
      return size_bytes == 8 ? kBlasSuccess : kInvalidValue;
    }
    const int matrix = attribute - kBlasPreferenceAlignmentA;
    if (matrix < 0 || matrix > 3 || size_bytes != sizeof(uint32_t)) return kInvalidValue;
    std::memcpy(&preference->alignments[matrix], value, size_bytes);
    return kBlasSuccess;
  };
  table.Suggest = &Suggest;
  table.Multiply = &Multiply;
  return table;
}

}  // namespace tessera::tests

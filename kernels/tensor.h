// A view of device memory: pointer, shape, element type. Owns nothing (Buffer in device.h owns), is
// copied freely, and says nothing about when its contents are valid: that is the stream's business.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/dtype.h"

namespace tessera::kernels {

// Up to four dimensions, row-major. Only the outermost dimension may be strided (a column slice of
// a wider matrix, such as q inside a fused qkv output); the inner ones are dense. Its functions are
// always inlined: files compiled for a wider instruction set include this header too, and must not
// leave a copy that the linker could give to everybody.
struct TensorView {
  static constexpr int kMaxRank = 4;

  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape = {0, 0, 0, 0};
  int64_t row_stride = 0;  // elements between consecutive indices of dimension 0

  TensorView() = default;
  TensorView(void* memory, DType type, std::initializer_list<int64_t> dimensions)
      : data(static_cast<std::byte*>(memory)), dtype(type) {
    for (int64_t size : dimensions) shape[rank++] = size;
    row_stride = RowElements();
  }

  [[gnu::always_inline]] bool empty() const { return data == nullptr; }
  [[gnu::always_inline]] int64_t rows() const { return rank == 0 ? 0 : shape[0]; }
  // Elements of one index of dimension 0.
  [[gnu::always_inline]] int64_t RowElements() const {
    int64_t elements = 1;
    for (int i = 1; i < rank; ++i) elements *= shape[i];
    return elements;
  }
  [[gnu::always_inline]] int64_t Elements() const {
    return rank == 0 ? 0 : shape[0] * RowElements();
  }
  [[gnu::always_inline]] bool IsDense() const { return row_stride == RowElements(); }

  template <typename T>
  [[gnu::always_inline]] T* As() const {
    return reinterpret_cast<T*>(data);
  }
  template <typename T>
  [[gnu::always_inline]] T* Row(int64_t index) const {
    return reinterpret_cast<T*>(data) + index * row_stride;
  }
  // The first `count` rows.
  [[gnu::always_inline]] TensorView Rows(int64_t count) const {
    TensorView view = *this;
    view.shape[0] = count;
    return view;
  }
};

}  // namespace tessera::kernels

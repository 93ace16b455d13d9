#!/usr/bin/env python3
"""Writes fragments.txt beside it: which element of a matrix each lane's registers hold.

The tables come from the layouts of NVIDIA's CuTe, evaluated on the host by g++, without a GPU. CuTe is
read from the wheel nvidia-cutlass, which pip fetches; the CUDA headers come from CUDA_HOME or
/usr/local/cuda. Nothing of either goes into the project.

A line is `TABLE LANE` and, for each 16-bit value (f32 for c) in the order of registers, lower half
first: `row:column` for the matrices a (row, k), b (k, column) and c of a product; `matrix:row:column`
for the four 8 x 8 matrices of a load.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

CUTLASS = "nvidia-cutlass==4.2.0.0"

PROGRAM = r"""
#include <cstdio>
#include <cute/tensor.hpp>
#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm80.hpp>

using namespace cute;

// CuTe's layouts give column-major indices into (M, K), (N, K) and (M, N).
template <class Atom>
void PrintProduct(const char* name) {
  using Traits = MMA_Traits<Atom>;
  constexpr int m = 16, n = 8;
  const auto table = [&](char matrix, auto layout, auto place) {
    for (int lane = 0; lane < 32; ++lane) {
      std::printf("%s_%c %d", name, matrix, lane);
      for (int value = 0; value < int(size<1>(layout)); ++value) place(int(layout(lane, value)));
      std::puts("");
    }
  };
  table('a', typename Traits::ALayout{}, [](int at) { std::printf(" %d:%d", at % m, at / m); });
  table('b', typename Traits::BLayout{}, [](int at) { std::printf(" %d:%d", at / n, at % n); });
  table('c', typename Traits::CLayout{}, [](int at) { std::printf(" %d:%d", at % m, at / m); });
}

// The destination's layout gives, in bits, where in the source a value was; lane 8m + i of the source
// is row i of matrix m.
template <class Operation>
void PrintLoad(const char* name) {
  using Traits = Copy_Traits<Operation>;
  typename Traits::SrcLayout source;
  typename Traits::DstLayout destination;
  const int row_bits = int(source(1, 0)) - int(source(0, 0));
  for (int lane = 0; lane < 32; ++lane) {
    std::printf("%s %d", name, lane);
    for (int value = 0; value < 8; ++value) {
      const int bit = int(destination(lane, value * 16)), row = bit / row_bits;
      std::printf(" %d:%d:%d", row / 8, row % 8, bit % row_bits / 16);
    }
    std::puts("");
  }
}

int main() {
  PrintProduct<SM80_16x8x16_F32F16F16F32_TN>("mma_16x8x16_f16");
  PrintProduct<SM80_16x8x16_F32BF16BF16F32_TN>("mma_16x8x16_bf16");
  PrintProduct<SM75_16x8x8_F32F16F16F32_TN>("mma_16x8x8_f16");
  PrintProduct<SM80_16x8x8_F32BF16BF16F32_TN>("mma_16x8x8_bf16");
  PrintLoad<SM75_U32x4_LDSM_N>("load_matrices");
  PrintLoad<SM75_U16x8_LDSM_T>("load_matrices_transposed");
}
"""


def main():
    cuda = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target",
                        scratch / "wheel", CUTLASS], check=True)
        cute = scratch / "wheel/cutlass_library/source/include"
        (scratch / "tables.cc").write_text(PROGRAM)
        subprocess.run(["g++", "-std=c++17", "-w", f"-I{cute}", f"-I{cuda}", f"-I{cuda / 'cccl'}",
                        scratch / "tables.cc", "-o", scratch / "tables"], check=True)
        tables = subprocess.run([scratch / "tables"], check=True, capture_output=True, text=True).stdout
    target = pathlib.Path(__file__).with_name("fragments.txt")
    target.write_text(f"# Made by make_fragments.py from the layouts of {CUTLASS}.\n" + tables)


if __name__ == "__main__":
    main()

// NVIDIA's cuBLASLt (libcublasLt.so.13) as a table of typed functions: filled at run time, so that
// one program also runs where it is not installed, and by a fake in tests.
//
// The types are the library's ABI, declared here because a build without it has no cublasLt.h;
// blas_abi_test holds them against cublasLt.h where there is one. Thread rule: the table is a plain
// value; the library's functions are thread-safe, its descriptors are not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

namespace tessera::kernels::cuda {

using BlasStatus = int;  // cublasStatus_t
using BlasHandle = struct BlasContext*;
using BlasProduct = struct BlasProductDescriptor*;
using BlasLayout = struct BlasLayoutDescriptor*;
using BlasPreference = struct BlasPreferenceDescriptor*;
using BlasStream = void*;  // cudaStream_t
// cublasLtMatmulAlgo_t.
struct BlasAlgorithm {
  uint64_t data[8];
};
// cublasLtMatmulHeuristicResult_t.
struct BlasSuggestion {
  BlasAlgorithm algorithm;
  size_t workspace_bytes;
  BlasStatus state;
  float waves;
  int reserved[4];
};

inline constexpr BlasStatus kBlasSuccess = 0;
// cudaDataType.
inline constexpr int kBlasFloat32 = 0;
inline constexpr int kBlasFloat16 = 2;
inline constexpr int kBlasBFloat16 = 14;
inline constexpr int kBlasComputeFloat32 = 68;  // cublasComputeType_t
inline constexpr int kBlasTransposed = 1;       // cublasOperation_t
// Attributes of a product, values of its epilogue, attributes of a layout and of a preference.
inline constexpr int kBlasProductTransposeA = 3;
inline constexpr int kBlasProductEpilogue = 7;
inline constexpr int kBlasProductBiasPointer = 8;
inline constexpr int kBlasEpilogueBias = 4;
inline constexpr int kBlasLayoutColumns = 3;
inline constexpr int kBlasLayoutLeadingDimension = 4;
inline constexpr int kBlasPreferenceWorkspaceBytes = 1;
// The multiple of bytes that a matrix begins at: the weights, the rows, what is added, the output.
inline constexpr int kBlasPreferenceAlignmentA = 5;
inline constexpr int kBlasPreferenceAlignmentB = 6;
inline constexpr int kBlasPreferenceAlignmentC = 7;
inline constexpr int kBlasPreferenceAlignmentD = 8;

// Field, symbol in the library, type.
#define TESSERA_BLAS_FUNCTIONS(X)                                                                \
  X(GetVersion, "cublasLtGetVersion", size_t())                                                  \
  X(Create, "cublasLtCreate", BlasStatus(BlasHandle* handle))                                    \
  X(Destroy, "cublasLtDestroy", BlasStatus(BlasHandle handle))                                   \
  X(ProductCreate, "cublasLtMatmulDescCreate",                                                   \
    BlasStatus(BlasProduct* product, int compute_type, int scale_type))                          \
  X(ProductDestroy, "cublasLtMatmulDescDestroy", BlasStatus(BlasProduct product))                \
  X(ProductSet, "cublasLtMatmulDescSetAttribute",                                                \
    BlasStatus(BlasProduct product, int attribute, const void* value, size_t size_bytes))        \
  X(LayoutCreate, "cublasLtMatrixLayoutCreate",                                                  \
    BlasStatus(BlasLayout* layout, int type, uint64_t rows, uint64_t columns,                    \
               int64_t leading_dimension))                                                       \
  X(LayoutDestroy, "cublasLtMatrixLayoutDestroy", BlasStatus(BlasLayout layout))                 \
  X(LayoutSet, "cublasLtMatrixLayoutSetAttribute",                                               \
    BlasStatus(BlasLayout layout, int attribute, const void* value, size_t size_bytes))          \
  X(PreferenceCreate, "cublasLtMatmulPreferenceCreate", BlasStatus(BlasPreference* preference))  \
  X(PreferenceDestroy, "cublasLtMatmulPreferenceDestroy", BlasStatus(BlasPreference preference)) \
  X(PreferenceSet, "cublasLtMatmulPreferenceSetAttribute",                                       \
    BlasStatus(BlasPreference preference, int attribute, const void* value, size_t size_bytes))  \
  X(Suggest, "cublasLtMatmulAlgoGetHeuristic",                                                   \
    BlasStatus(BlasHandle handle, BlasProduct product, BlasLayout a, BlasLayout b, BlasLayout c, \
               BlasLayout d, BlasPreference preference, int wanted, BlasSuggestion* suggestions, \
               int* found))                                                                      \
  X(Multiply, "cublasLtMatmul",                                                                  \
    BlasStatus(BlasHandle handle, BlasProduct product, const void* alpha, const void* a,         \
               BlasLayout a_layout, const void* b, BlasLayout b_layout, const void* beta,        \
               const void* c, BlasLayout c_layout, void* d, BlasLayout d_layout,                 \
               const BlasAlgorithm* algorithm, void* workspace, size_t workspace_bytes,          \
               BlasStream stream))

struct BlasTable {
#define TESSERA_TABLE_FIELD(name, symbol, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  TESSERA_BLAS_FUNCTIONS(TESSERA_TABLE_FIELD)
#undef TESSERA_TABLE_FIELD
};

struct OpenedBlas {
  std::optional<BlasTable> table;
  // Where it was found, and its version ("13.1.0"); or, where the table is empty, why: the loader's
  // words, or a missing function.
  std::string file, version, no_blas;
};

// The library stays loaded. Looked for where the loader looks (LD_LIBRARY_PATH), then in CUDA_HOME,
// then in /usr/local/cuda.
OpenedBlas OpenBlas();

}  // namespace tessera::kernels::cuda

// Our declarations of cuBLASLt against NVIDIA's cublasLt.h, where a toolkit has it.
#include <catch2/catch.hpp>

#include "kernels/cuda/driver/blas_table.h"
#include "tests/catch_skip.h"
#include "tests/kernels/cuda/driver/same_call.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

namespace tessera::kernels::cuda {
namespace {

#define TESSERA_CHECK(field, function) \
  static_assert(SameCall<decltype(&function), decltype(BlasTable::field)>::value);
TESSERA_CHECK(GetVersion, cublasLtGetVersion)
TESSERA_CHECK(Create, cublasLtCreate)
TESSERA_CHECK(Destroy, cublasLtDestroy)
TESSERA_CHECK(ProductCreate, cublasLtMatmulDescCreate)
TESSERA_CHECK(ProductDestroy, cublasLtMatmulDescDestroy)
TESSERA_CHECK(ProductSet, cublasLtMatmulDescSetAttribute)
TESSERA_CHECK(LayoutCreate, cublasLtMatrixLayoutCreate)
TESSERA_CHECK(LayoutDestroy, cublasLtMatrixLayoutDestroy)
TESSERA_CHECK(LayoutSet, cublasLtMatrixLayoutSetAttribute)
TESSERA_CHECK(PreferenceCreate, cublasLtMatmulPreferenceCreate)
TESSERA_CHECK(PreferenceDestroy, cublasLtMatmulPreferenceDestroy)
TESSERA_CHECK(PreferenceSet, cublasLtMatmulPreferenceSetAttribute)
TESSERA_CHECK(Suggest, cublasLtMatmulAlgoGetHeuristic)
TESSERA_CHECK(Multiply, cublasLtMatmul)
#undef TESSERA_CHECK

TEST_CASE("structures and numbers are cublasLt.h's") {
  CHECK(sizeof(BlasAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
  CHECK(sizeof(BlasSuggestion) == sizeof(cublasLtMatmulHeuristicResult_t));
  CHECK(offsetof(BlasSuggestion, workspace_bytes) ==
        offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
  CHECK(offsetof(BlasSuggestion, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
  CHECK(int{kBlasSuccess} == CUBLAS_STATUS_SUCCESS);
  CHECK(int{kBlasFloat32} == CUDA_R_32F);
  CHECK(int{kBlasFloat16} == CUDA_R_16F);
  CHECK(int{kBlasBFloat16} == CUDA_R_16BF);
  CHECK(int{kBlasComputeFloat32} == CUBLAS_COMPUTE_32F);
  CHECK(int{kBlasTransposed} == CUBLAS_OP_T);
  CHECK(int{kBlasProductTransposeA} == CUBLASLT_MATMUL_DESC_TRANSA);
  CHECK(int{kBlasProductEpilogue} == CUBLASLT_MATMUL_DESC_EPILOGUE);
  CHECK(int{kBlasProductBiasPointer} == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  CHECK(int{kBlasEpilogueBias} == CUBLASLT_EPILOGUE_BIAS);
  CHECK(int{kBlasLayoutColumns} == CUBLASLT_MATRIX_LAYOUT_COLS);
  CHECK(int{kBlasLayoutLeadingDimension} == CUBLASLT_MATRIX_LAYOUT_LD);
  CHECK(int{kBlasPreferenceWorkspaceBytes} == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  CHECK(int{kBlasPreferenceAlignmentA} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  CHECK(int{kBlasPreferenceAlignmentB} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
  CHECK(int{kBlasPreferenceAlignmentC} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
  CHECK(int{kBlasPreferenceAlignmentD} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
}

}  // namespace
}  // namespace tessera::kernels::cuda

#else

TEST_CASE("structures and numbers are cublasLt.h's") {
  TESSERA_SKIP("no CUDA header cublasLt.h: deploy/install_cuda --runtime fetches it");
}

#endif

namespace tessera::kernels::cuda {

TEST_CASE("cuBLASLt is opened with its version, or there is a reason") {
  const OpenedBlas opened = OpenBlas();
  if (opened.table.has_value()) {
    CHECK(opened.version.substr(0, 3) == "13.");
    CHECK_FALSE(opened.file.empty());
    CHECK(opened.no_blas.empty());
  } else {
    CHECK_FALSE(opened.no_blas.empty());
  }
}

}  // namespace tessera::kernels::cuda

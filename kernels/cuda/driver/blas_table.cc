#include "kernels/cuda/driver/blas_table.h"

#include "kernels/cuda/driver/cuda_library.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda {
namespace {

// cublasLtGetVersion: 130100 is 13.1.0.
std::string Dotted(size_t version) {
  return StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace

OpenedBlas OpenBlas() {
  CudaLibrary library = CudaLibrary::Open("libcublasLt.so.13");
  BlasTable table;
#define TESSERA_FIND(name, symbol, ...) library.Find(symbol, table.name);
  TESSERA_BLAS_FUNCTIONS(TESSERA_FIND)
#undef TESSERA_FIND
  OpenedBlas opened;
  opened.file = library.file();
  opened.no_blas = library.problem();
  if (!opened.no_blas.empty()) return opened;
  opened.version = Dotted(table.GetVersion());
  opened.table = table;
  return opened;
}

}  // namespace tessera::kernels::cuda

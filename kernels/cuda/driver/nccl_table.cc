#include "kernels/cuda/driver/nccl_table.h"

#include "kernels/cuda/driver/cuda_library.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda {
namespace {

constexpr int kOldestVersion = 21400;  // the first with communicators that do not block

// ncclGetVersion: 22809 is 2.28.9.
std::string Dotted(int version) {
  return StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace

OpenedNccl OpenNccl() {
  CudaLibrary library = CudaLibrary::Open("libnccl.so.2", "../nccl/lib");
  NcclTable table;
#define TESSERA_FIND(name, symbol, ...) library.Find(symbol, table.name);
  TESSERA_NCCL_FUNCTIONS(TESSERA_FIND)
#undef TESSERA_FIND
  OpenedNccl opened;
  opened.file = library.file();
  opened.no_nccl = library.problem();
  if (!opened.no_nccl.empty()) return opened;
  int version = 0;
  if (table.GetVersion(&version) != kNcclSuccess || version < kOldestVersion) {
    opened.no_nccl = StrCat(opened.file, " is NCCL ", Dotted(version), "; 2.14 is needed");
    return opened;
  }
  opened.version = Dotted(version);
  opened.table = table;
  return opened;
}

}  // namespace tessera::kernels::cuda

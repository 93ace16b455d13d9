#include "kernels/cuda/driver/blas_table.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda {
namespace {

constexpr const char* kFile = "libcublasLt.so.13";

std::vector<std::string> Places() {
  std::vector<std::string> places = {kFile};
  const char* const home = std::getenv("CUDA_HOME");
  for (const std::string& root :
       {std::string(home == nullptr ? "" : home), std::string("/usr/local/cuda")}) {
    if (root.empty()) continue;
    places.push_back(StrCat(root, "/lib64/", kFile));
    places.push_back(StrCat(root, "/lib/", kFile));
  }
  return places;
}

// cublasLtGetVersion: 130100 is 13.1.0.
std::string Dotted(size_t version) {
  return StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace

OpenedBlas OpenBlas() {
  OpenedBlas opened;
  void* library = nullptr;
  for (const std::string& place : Places()) {
    library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) {
      opened.file = place;
      break;
    }
    const char* const error = dlerror();
    if (opened.no_blas.empty()) opened.no_blas = error != nullptr ? error : place;
  }
  if (library == nullptr) return opened;
  opened.no_blas.clear();
  BlasTable table;
  const auto find = [&](const char* symbol, auto*& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
    if (function == nullptr && opened.no_blas.empty()) {
      opened.no_blas = StrCat(opened.file, " has no function ", symbol);
    }
  };
#define TESSERA_FIND(name, symbol, ...) find(symbol, table.name);
  TESSERA_BLAS_FUNCTIONS(TESSERA_FIND)
#undef TESSERA_FIND
  if (!opened.no_blas.empty()) return opened;
  opened.version = Dotted(table.GetVersion());
  opened.table = table;
  return opened;
}

}  // namespace tessera::kernels::cuda

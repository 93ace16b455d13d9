// A library of NVIDIA's that comes with CUDA, opened at run time, and its functions by name.
//
// Thread rule: a plain value; opening reads the environment. The library stays loaded.
#pragma once

#include <string>
#include <type_traits>

namespace tessera::kernels::cuda {

class CudaLibrary {
 public:
  // `file`: "libnccl.so.2". Looked for where the loader looks (LD_LIBRARY_PATH), then in the
  // library folders of CUDA_HOME, then of /usr/local/cuda; in each also in `wheel_folder`, where
  // NVIDIA's wheels have it beside CUDA ("../nccl/lib"), if it is not empty.
  static CudaLibrary Open(const std::string& file, const std::string& wheel_folder = "");

  // Why there is none, in the loader's words, or which function it has not; empty: all is there.
  const std::string& problem() const { return problem_; }
  const std::string& file() const { return file_; }  // where it was found

  // Null where it has no such function: problem() says so.
  template <typename Function>
  void Find(const char* symbol, Function*& function) {
    function = reinterpret_cast<Function*>(Address(symbol));
  }

 private:
  void* Address(const char* symbol);

  void* library_ = nullptr;
  std::string file_, problem_;
};

}  // namespace tessera::kernels::cuda

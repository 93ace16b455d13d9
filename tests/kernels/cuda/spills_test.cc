// No kernel that has to be fast keeps registers in memory: what ptxas says of each of them.
#include <cxxabi.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace tessera::kernels::cuda {
namespace {

struct Kernel {
  std::string name;          // "void ...::PrefillKernel<tessera::kernels::BFloat16, 128, 2>(...)"
  std::string architecture;  // "sm_90"
  int stack_bytes = -1, spill_bytes = -1, registers = -1;
};

std::string Demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string demangled = status == 0 ? text : name;
  std::free(text);
  return demangled;
}

// Kernels of a report of `ptxas -v`, in its order.
std::vector<Kernel> KernelsOf(std::istream& report) {
  static const std::regex kEntry("Compiling entry function '([^']+)' for '([^']+)'");
  static const std::regex kStack("([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores");
  static const std::regex kRegisters("Used ([0-9]+) registers");
  std::vector<Kernel> kernels;
  for (std::string line; std::getline(report, line);) {
    std::smatch match;
    if (std::regex_search(line, match, kEntry)) {
      kernels.push_back({Demangled(match[1]), match[2]});
    } else if (!kernels.empty() && std::regex_search(line, match, kStack)) {
      kernels.back().stack_bytes = std::stoi(match[1]);
      kernels.back().spill_bytes = std::stoi(match[2]);
    } else if (!kernels.empty() && std::regex_search(line, match, kRegisters)) {
      kernels.back().registers = std::stoi(match[1]);
    }
  }
  return kernels;
}

// What may spill, and why. A part of the name, and the architecture or "" for all.
struct Exception {
  std::string name, architecture, reason;
};
const std::vector<Exception> kExceptions = {
    {"PrefillKernel<tessera::kernels::Float16, 256, ", "sm_75",
     "without asynchronous copies what is copied passes through registers"},
    {"DecodeKernel<tessera::kernels::Float16, ", "sm_75", "the same"},
    {"CodeRowsKernel<tessera::kernels::Float16, ", "sm_75", "the same"},
    {"WideKernel<tessera::kernels::Float16, 576>", "sm_75", "never launched there"},
    {"PrefillKernel<tessera::kernels::Float16, 128, false, 2>", "sm_90",
     "two registers of 255: two blocks of a multiprocessor are worth more"},
    {"PrefillKernel<tessera::kernels::BFloat16, 128, false, 2>", "sm_90", "the same"},
    {"PrefillKernel<tessera::kernels::Float16, 128, true, 2>", "sm_90",
     "heads between the sizes, soft caps and chunks, which have one kernel"},
    {"PrefillKernel<tessera::kernels::BFloat16, 128, true, 2>", "sm_90", "the same"},
    {"CombineKernel<2>", "sm_90", "one register: more blocks at once are worth more"},
    {"DecodeKernel<tessera::kernels::Float16, 128, false>", "sm_90",
     "one register: four blocks of a multiprocessor are worth more"},
    {"DecodeKernel<tessera::kernels::BFloat16, 128, false>", "sm_90", "the same"},
    {"PrefillKernel<tessera::kernels::Float16, 128, false, 2>", "sm_75", "never launched there"},
    {"PrefillKernel<tessera::kernels::Float16, 128, true, 2>", "sm_75", "nor is this"},
    {"PrefillKernel<tessera::kernels::Float16, 96, false, 2>", "sm_75", "nor this"},
    {"Kernel<tessera::kernels::BFloat16,", "sm_75", "never launched: 7.5 has no bf16"},
};

bool IsExcepted(const Kernel& kernel) {
  for (const Exception& exception : kExceptions) {
    const bool named = kernel.name.find(exception.name) != std::string::npos;
    if (named &&
        (exception.architecture.empty() || exception.architecture == kernel.architecture)) {
      return true;
    }
  }
  return false;
}

std::vector<Kernel> AllKernels() {
  std::vector<Kernel> kernels;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("kernels/cuda")) {
    if (entry.path().extension() != ".ptxas") continue;
    std::ifstream report(entry.path());
    for (Kernel& kernel : KernelsOf(report)) kernels.push_back(std::move(kernel));
  }
  return kernels;
}

TEST_CASE("a report of ptxas is read") {
  std::istringstream report(R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4fasti' for 'sm_75'
ptxas info    : Function properties for _Z4fasti
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers
ptxas info    : Compiling entry function '_Z4slowi' for 'sm_90'
ptxas info    : Function properties for _Z4slowi
    24 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers
)");
  const std::vector<Kernel> kernels = KernelsOf(report);
  REQUIRE(kernels.size() == 2);
  CHECK(kernels[0].name == "fast(int)");
  CHECK(kernels[0].architecture == "sm_75");
  CHECK(kernels[0].spill_bytes == 0);
  CHECK(kernels[0].registers == 168);
  CHECK(kernels[1].stack_bytes == 24);
  CHECK(kernels[1].spill_bytes == 16);
}

TEST_CASE("no register of a kernel that has to be fast is kept in memory") {
  const std::vector<Kernel> kernels = AllKernels();
  for (const char* name : {"PrefillKernel<", "DecodeKernel<", "GemmKernel<", "GemvKernel<"}) {
    INFO(name);
    int found = 0;
    for (const Kernel& kernel : kernels) found += kernel.name.find(name) != std::string::npos;
    CHECK(found >= 6);  // types and shapes, of at least one architecture
  }
  for (const Kernel& kernel : kernels) {
    INFO(kernel.name << " for " << kernel.architecture << ": " << kernel.registers << " registers");
    if (IsExcepted(kernel)) continue;
    CHECK(kernel.spill_bytes == 0);
    CHECK(kernel.stack_bytes == 0);
  }
}

// Where a multiprocessor has 65536 registers, three blocks of 128 threads run at once with 168, two
// with more.
TEST_CASE("the tile of 64 rows of codes takes no more registers than it did") {
  const std::vector<std::pair<std::string, int>> most = {{"::Nibbles", 176},
                                                         {"::E2m1", 176},
                                                         {"signed char", 179},
                                                         {"::Float8", 179},
                                                         {"::OffsetNibbles", 217}};
  const std::vector<Kernel> kernels = AllKernels();
  const bool has_report = std::any_of(kernels.begin(), kernels.end(), [](const Kernel& kernel) {
    return kernel.architecture == "sm_90";
  });
  if (!has_report) return;  // TESSERA_CUDA_ARCHS names others
  for (const auto& [codes, registers] : most) {
    INFO(codes);
    int found = 0;
    for (const Kernel& kernel : kernels) {
      const bool is_meant = kernel.architecture == "sm_90" &&
                            kernel.name.find("GemmKernel<") != std::string::npos &&
                            kernel.name.find(codes + ", 4, 1>") != std::string::npos;
      if (!is_meant) continue;
      ++found;
      CHECK(kernel.registers <= registers);
    }
    CHECK(found == 2);  // float16 and bfloat16
  }
}

}  // namespace
}  // namespace tessera::kernels::cuda

// Which instruction sets this processor has, and which kernel path is used on it.
//
// The path is chosen at run time: the binary itself is compiled for the x86-64 baseline, and only
// the kernels of a path use its instructions. Detection asks CPUID and XGETBV (Intel SDM vol. 1,
// ch. 13-14: both the processor and the operating system must agree), and for AMX the kernel's
// permission to use tile data (arch_prctl ARCH_REQ_XCOMP_PERM). Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::kernels {

// Ordered: each path's processor also runs those before it. A name is all that the path uses:
// kAvx512 is what every AVX-512 processor runs, also where this one could multiply pairs of bf16;
// kAmx uses kAvx512Bf16's kernels for all but matrix tiles. (oneDNN's ONEDNN_MAX_CPU_ISA cuts
// AVX512_CORE, AVX512_CORE_BF16 and AVX512_CORE_AMX alike.)
enum class Isa : uint8_t { kReference, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// The values of --cpu-isa: "reference", "avx2", "avx512", "avx512_bf16", "amx".
std::string_view Name(Isa isa);

struct CpuFeatures {
  bool avx2 = false;         // with FMA and F16C
  bool avx512 = false;       // F, BW, DQ and VL together
  bool avx512_bf16 = false;  // and VBMI; within avx512
  bool avx512_vnni = false;  // within avx512
  bool amx = false;          // tiles with bf16 and int8, and permission to use them; needs avx512
};

// Asked once per process.
const CpuFeatures& DetectCpuFeatures();

bool IsSupported(Isa isa, const CpuFeatures& features);
// From kReference to the best.
std::vector<Isa> SupportedIsas(const CpuFeatures& features);

// Reads --cpu-isa: "auto" (the best there is) or a path's name. InvalidArgument for an unknown
// name, FailedPrecondition where the processor lacks it; both say what there is.
absl::StatusOr<Isa> ParseIsa(std::string_view text,
                             const CpuFeatures& features = DetectCpuFeatures());

}  // namespace tessera::kernels

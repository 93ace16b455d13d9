#include "kernels/cpu/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace tessera::kernels {
namespace {

constexpr Isa kAllIsas[] = {Isa::kReference, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx};

struct CpuidRegisters {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidRegisters Cpuid(uint32_t leaf, uint32_t subleaf) {
  CpuidRegisters r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

bool Bit(uint32_t value, int index) { return ((value >> index) & 1u) != 0; }

// Register state that the operating system saves for us; asm because the intrinsic needs -mxsave.
uint64_t ReadXcr0() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

bool AskForAmxTiles() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

CpuFeatures Detect() {
  constexpr uint64_t kAvxState = 0x6, kAvx512State = 0xe6, kAmxState = 0x60000;
  const CpuidRegisters basic = Cpuid(1, 0);
  const bool os_saves_registers = Bit(basic.ecx, 27);
  if (!os_saves_registers) return {};
  const uint64_t xcr0 = ReadXcr0();
  const CpuidRegisters extended = Cpuid(7, 0);
  const CpuidRegisters more = Cpuid(7, 1);

  CpuFeatures f;
  const bool fma = Bit(basic.ecx, 12), avx = Bit(basic.ecx, 28), f16c = Bit(basic.ecx, 29);
  f.avx2 = fma && avx && f16c && Bit(extended.ebx, 5) && (xcr0 & kAvxState) == kAvxState;
  const bool foundation = Bit(extended.ebx, 16), dq = Bit(extended.ebx, 17);
  const bool bw = Bit(extended.ebx, 30), vl = Bit(extended.ebx, 31);
  f.avx512 = f.avx2 && foundation && dq && bw && vl && (xcr0 & kAvx512State) == kAvx512State;
  f.avx512_vnni = f.avx512 && Bit(extended.ecx, 11);
  f.avx512_bf16 = f.avx512 && Bit(more.eax, 5) && Bit(extended.ecx, 1);
  const bool tiles = Bit(extended.edx, 24) && Bit(extended.edx, 22) && Bit(extended.edx, 25);
  f.amx = f.avx512_bf16 && f.avx512_vnni && tiles && (xcr0 & kAmxState) == kAmxState &&
          AskForAmxTiles();
  return f;
}

std::string ListSupported(const CpuFeatures& features) {
  std::string list = "auto";
  for (Isa isa : SupportedIsas(features)) {
    list += ", ";
    list += Name(isa);
  }
  return list;
}

}  // namespace

std::string_view Name(Isa isa) {
  switch (isa) {
    case Isa::kReference: return "reference";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Bf16: return "avx512_bf16";
    case Isa::kAmx: return "amx";
  }
  return "unknown";
}

const CpuFeatures& DetectCpuFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

bool IsSupported(Isa isa, const CpuFeatures& features) {
  switch (isa) {
    case Isa::kReference: return true;
    case Isa::kAvx2: return features.avx2;
    case Isa::kAvx512: return features.avx512;
    case Isa::kAvx512Bf16: return features.avx512_bf16;
    case Isa::kAmx: return features.amx;
  }
  return false;
}

std::vector<Isa> SupportedIsas(const CpuFeatures& features) {
  std::vector<Isa> supported;
  for (Isa isa : kAllIsas) {
    if (IsSupported(isa, features)) supported.push_back(isa);
  }
  return supported;
}

absl::StatusOr<Isa> ParseIsa(std::string_view text, const CpuFeatures& features) {
  if (text == "auto") return SupportedIsas(features).back();
  for (Isa isa : kAllIsas) {
    if (text != Name(isa)) continue;
    if (IsSupported(isa, features)) return isa;
    return absl::FailedPreconditionError(absl::StrCat("--cpu-isa=", std::string(text),
                                                      ": this processor (or its operating system) "
                                                      "does not have it; choose one of: ",
                                                      ListSupported(features)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--cpu-isa=", std::string(text),
                   ": no such kernel path; choose one of: ", ListSupported(features)));
}

}  // namespace tessera::kernels

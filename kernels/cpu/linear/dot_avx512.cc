// Linear panels with AVX512_BF16 and bf16 activations. Compiled with
// -mavx512{f,bw,dq,vl,bf16,vbmi}.
#include "kernels/cpu/linear/dot_kernels.h"

namespace tessera::kernels::cpu::linear {

constinit const KernelSet kAvx512DotKernels = DotKernels("avx512_bf16");

}  // namespace tessera::kernels::cpu::linear

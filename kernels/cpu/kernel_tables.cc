#include "kernels/cpu/kernel_tables.h"

#include "kernels/cpu/reference/reference_kernels.h"

namespace tessera::kernels {

KernelTable KernelsFor(Isa) { return reference::Kernels(); }

}  // namespace tessera::kernels

// Which kernels a path consists of.
#pragma once

#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_table.h"

namespace tessera::kernels {

// The processor must support `isa` before any of the functions is called.
KernelTable KernelsFor(Isa isa);

}  // namespace tessera::kernels

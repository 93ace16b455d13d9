// The second half of MoeRoute: from each row's chosen experts to slots sorted by expert.
#pragma once

#include "kernels/ops.h"

namespace tessera::kernels {

// args.slots holds expert numbers on entry, slots on return; fills source_rows and expert_offsets.
void SortByExpert(const MoeRouteArgs& args);

}  // namespace tessera::kernels

// NCCL as a test describes it: ranks are threads of this process, and a call is in progress until
// all that it exchanges was copied between their memories, which the host reads, as the emulated
// GPU's.
//
// Thread rule: one fake at a time, for the process; its functions from any thread.
#pragma once

#include <atomic>

#include "kernels/cuda/driver/nccl_table.h"

namespace tessera::tests {

struct FakeNccl {
  std::atomic<double> delay_seconds = 0;   // of everything that is exchanged
  std::atomic<bool> aborts_block = false;  // those that begin now
  std::atomic<bool> joins_fail = false;
  std::atomic<int> absent_rank = -1;    // whose joins the others never hear of
  std::atomic<void*> stream = nullptr;  // of the last send or receipt
  // What was called, and what is there.
  std::atomic<int> aborted = 0, destroyed = 0, alive = 0;
  std::atomic<int> max_ctas = 0;  // that the last join asked for; kNcclUndefined: none
};

// `fake` is read and written as long as the table is used, and until aborts that block have ended.
kernels::cuda::NcclTable TableOf(FakeNccl* fake);
// As if the process of this rank had died, in all groups: what others wait for it for fails.
void KillRank(int rank);
// Ends aborts that block; returns when they have.
void EndAborts();

}  // namespace tessera::tests

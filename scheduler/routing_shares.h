// Keeps the traffic of replicas at the shares that a plan gives them (plan.proto, RoutingShare),
// while the router decides by load among those that are within their share. The daemon and the
// simulator both route through it.
//
// Idea: count what each got of the last kShareWindow requests or so; the next one may go where one
// more stays within the share plus kShareSlack requests. Somebody always is: shares sum to one, and
// so do the counts. Shares are taken among the replicas that are ready. A replica without a share
// gets something only where nobody else is ready. The part that a plan sheds is not kept: queues'
// limits do that.
//
// Thread rule: pure functions. Deterministic. O(replicas). Shares, counts and loads are by replica,
// in the same order; shares need not sum to one.
#pragma once

#include <cstddef>
#include <span>

#include "scheduler/router.h"

namespace tessera::scheduler {

inline constexpr double kShareWindow = 200;
// Of the counts, with each request that is counted.
inline constexpr double kShareDecay = 1 - 1 / kShareWindow;
inline constexpr double kShareSlack = 2;

// Replicas that keep a share among each other: those that compute prompts, or those that only
// decode what others prefilled.
enum class ShareSide { kPrefill, kDecodeOnly };

// Takes those of one side out of the snapshot (ready = false) that have had their share.
void RestrictToShares(ShareSide side, std::span<const double> shares,
                      std::span<const double> counts, std::span<ReplicaLoad> loads);

// A request went to `replica`; `counts` are those of its side.
void NoteRouted(size_t replica, std::span<double> counts);

}  // namespace tessera::scheduler

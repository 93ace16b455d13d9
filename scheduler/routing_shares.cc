#include "scheduler/routing_shares.h"

namespace tessera::scheduler {

void RestrictToShares(ShareSide side, std::span<const double> shares,
                      std::span<const double> counts, std::span<ReplicaLoad> loads) {
  const auto is_meant = [side](const ReplicaLoad& load) {
    return load.ready && load.can_prefill == (side == ShareSide::kPrefill);
  };
  double all_shares = 0;
  double counted = 0;
  for (size_t i = 0; i < loads.size(); ++i) {
    if (!is_meant(loads[i])) continue;
    all_shares += shares[i];
    counted += counts[i];
  }
  if (all_shares <= 0) return;
  for (size_t i = 0; i < loads.size(); ++i) {
    if (!is_meant(loads[i])) continue;
    const double share = shares[i] / all_shares;
    loads[i].ready = share > 0 && counts[i] + 1 <= share * (counted + 1) + kShareSlack;
  }
}

void NoteRouted(size_t replica, std::span<double> counts) {
  for (double& count : counts) count *= kShareDecay;
  counts[replica] += 1;
}

}  // namespace tessera::scheduler

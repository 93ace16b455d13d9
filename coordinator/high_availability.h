// This process as one of several coordinators of a cluster (--ha): waits at its HTTP port until it
// leads, and keeps for the next leader what this one would lose.
//
//   election, and what is kept (coordinator/spare/leadership) <-> etcd
//   while it waits: 503 at the HTTP port (coordinator/spare/spare_door); nothing at the gRPC port,
//   so that workers go to the next address
//
// Thread rule: main's thread; term and HearTerm on any.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/coordinator_options.h"
#include "coordinator/deployment/plan_source.h"
#include "coordinator/spare/kept_cluster.h"
#include "coordinator/spare/leadership.h"
#include "tls/certificates.h"

namespace tessera::coordinator {

class HighAvailability {
 public:
  // Takes part in the election, and returns once this one leads; null, at once, without --ha.
  // CANCELLED once `stopped` says so; InvalidArgument names the flag. `certificates`: of the HTTP
  // port; null: plain.
  static absl::StatusOr<std::unique_ptr<HighAvailability>> Lead(
      const CoordinatorOptions& options, CertificateWatch* certificates,
      std::function<double()> now_seconds, const std::function<bool()>& stopped);

  // What the leader before has kept.
  KeptCluster kept() const { return ReadKeptValues(leadership_.kept()); }
  // The plans of the leader before where its flags said the same of plans, then those of `next`.
  std::unique_ptr<PlanSource> KeptFirst(std::unique_ptr<PlanSource> next,
                                        std::span<const v1::Model> models) const;
  uint64_t term() const { return leadership_.term(); }
  // A worker obeys a leader of this term.
  void HearTerm(uint64_t term) { leadership_.HearTerm(term); }
  // Another one leads.
  bool deposed() const { return leadership_.standing() == Leadership::Standing::kDeposed; }
  std::string leader_url() const;
  void Keep(const PlanSet& plans, const std::map<std::string, WorkerRecord>& workers) {
    leadership_.Keep(KeptValues(plans, flags_, workers));
  }
  void Resign() { leadership_.Resign(); }

 private:
  absl::Status Await(CertificateWatch* certificates, const std::function<bool()>& stopped);

  HighAvailability(const CoordinatorOptions& options, std::string flags,
                   LeadershipOptions leadership, std::unique_ptr<LeaderStore> store)
      : options_(options),
        flags_(std::move(flags)),
        leadership_(std::move(leadership), std::move(store)) {}

  const CoordinatorOptions options_;
  const std::string flags_;  // of plans, as KeptCluster has them
  Leadership leadership_;
};

}  // namespace tessera::coordinator

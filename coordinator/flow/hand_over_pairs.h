// Which replicas compute prompts, which go on from them, and which of these a request goes to: of
// the pairs that a plan has for a prefill replica the one that is furthest below its share.
//
// Thread rule: none of its own; guard it. Deterministic.
#pragma once

#include <map>
#include <set>
#include <string>

#include "proto/plan.pb.h"

namespace tessera::coordinator {

class HandOverPairs {
 public:
  HandOverPairs() = default;  // every replica does both
  explicit HandOverPairs(const v1::DeploymentPlan& plan);

  bool operator==(const HandOverPairs& other) const { return shares_ == other.shares_; }

  bool empty() const { return shares_.empty(); }
  // The plan sends prompts there; without a plan that says otherwise: everywhere.
  bool Prefills(const std::string& replica) const;
  bool Decodes(const std::string& replica) const;
  // Who goes on from what `prefill` computes, of those that are ready; `prefill` itself where the
  // plan says so, or none of the others is. Counts the choice.
  std::string Choose(const std::string& prefill, const std::set<std::string>& ready);

 private:
  std::map<std::string, std::map<std::string, double>> shares_;  // prefill, decode; empty: no pairs
  std::map<std::string, std::map<std::string, double>> counts_;
};

}  // namespace tessera::coordinator

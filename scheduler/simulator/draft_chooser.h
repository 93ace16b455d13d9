// How many drafts the steps of a simulated replica try, and which of them stand.
//
// The number is what the cost table finds best for as many sequences at about their mean context.
// Whether a draft stands is drawn by request and place, so that it is the same in every run and
// however steps are simulated. Thread rule: one thread. Units: tokens.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "scheduler/simulator/cost_table.h"

namespace tessera::scheduler {

class DraftChooser {
 public:
  // Borrows the table.
  DraftChooser(const CostTable* cost, int micro_batches)
      : cost_(cost), micro_batches_(micro_batches), acceptance_(cost->draft_acceptance()) {}

  bool any() const { return acceptance_ > 0; }
  // Drafts of each of so many sequences that decode in a step.
  int64_t For(int64_t sequences, double mean_context_tokens);
  // How many of so many drafts behind `known_tokens` of the request come before the first that does
  // not stand.
  int64_t Standing(int32_t request, int64_t known_tokens, int64_t drafts) const;

 private:
  static constexpr int kContexts = 32;  // powers of two

  const CostTable* const cost_;
  const int micro_batches_;
  const double acceptance_;
  std::vector<std::array<int8_t, kContexts>> found_;  // by sequences and context; -1: not yet
};

}  // namespace tessera::scheduler

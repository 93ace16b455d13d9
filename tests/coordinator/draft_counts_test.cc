// What plans make of the drafts that stood.
#include "coordinator/flow/draft_counts.h"

#include <catch2/catch.hpp>

#include "proto/plan_assumptions.pb.h"

namespace tessera::coordinator {
namespace {

// As many as a model gives of which each stands, behind those that stand, with `acceptance`.
DraftCounts Tried(double lists, double tokens_each, double acceptance) {
  DraftCounts counts = {.lists = lists, .tokens = lists * tokens_each, .asked_steps = lists};
  double stands = lists;
  for (int i = 0; i < static_cast<int>(tokens_each); ++i)
    counts.accepted_tokens += stands *= acceptance;
  counts.asked_accepted_tokens = counts.accepted_tokens;
  return counts;
}

}  // namespace

TEST_CASE("terms count on the drafts that stood, where enough were tried") {
  v1::DraftTerms terms;
  terms.set_source("mtp");
  terms.set_draft_tokens(3);
  terms.set_acceptance(0.7);
  CountOnMeasured(Tried(kEnoughLists - 1, 3, 0.4), &terms);
  CHECK(terms.acceptance() == 0.7);
  for (const double tokens : {1.0, 2.0, 3.0}) {
    CountOnMeasured(Tried(kEnoughLists, tokens, 0.4), &terms);
    CHECK(terms.acceptance() == 0.4);
    CHECK(terms.acceptance_origin() == v1::FIGURE_ORIGIN_MEASURED);
  }
  CountOnMeasured(Tried(900, 3, 0), &terms);
  CHECK(terms.acceptance() == 0);
  CountOnMeasured(Tried(900, 3, 1), &terms);
  CHECK(terms.acceptance() == 1);
  // With n-grams the steps that found nothing count, too, and those that left lists untried do not.
  terms.set_source("ngram");
  DraftCounts text = Tried(1000, 3, 1);
  text.asked_steps += 3000;
  text.Add({.lists = 500, .tokens = 500, .accepted_tokens = 100});
  CountOnMeasured(text, &terms);
  const double a = terms.acceptance();
  CHECK(a + a * a + a * a * a == Approx(3.0 / 4).epsilon(0.01));
  DraftCounts busy = Tried(900, 1, 0.1);
  busy.asked_steps = kEnoughLists - 1;
  CountOnMeasured(busy, &terms);
  CHECK(terms.acceptance() == a);
  terms.set_acceptance(0.9);
  terms.set_acceptance_origin(v1::FIGURE_ORIGIN_OPTION);
  CountOnMeasured(text, &terms);
  CHECK(terms.acceptance() == 0.9);
}

TEST_CASE("what was measured long ago counts for less and less") {
  DraftCounts counts;
  for (int i = 0; i < 50; ++i) counts.Add(Tried(10'000, 3, 0.9));
  for (int i = 0; i < 50; ++i) counts.Add(Tried(10'000, 3, 0.2));
  v1::DraftTerms terms;
  terms.set_source("mtp");
  terms.set_draft_tokens(3);
  CountOnMeasured(counts, &terms);
  CHECK(terms.acceptance() == Approx(0.2).margin(0.005));
}

}  // namespace tessera::coordinator

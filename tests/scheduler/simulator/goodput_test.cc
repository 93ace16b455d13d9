// The largest rate that a simulation attains, of a replica whose capacity is plain.
#include "scheduler/simulator/goodput.h"

#include <catch2/catch.hpp>

#include "tests/scheduler/simulator/tables.h"

namespace tessera::tests {
namespace {

using scheduler::GoodputQuestion;
using scheduler::PlanReplicas;
using scheduler::RequestClass;
using scheduler::SimulatedGoodputUpTo;

// One request at a time, a tenth of a second each: ten per second, which come like a clock.
struct Counter {
  PlanReplicas plan;
  std::vector<RequestClass> classes;
  GoodputQuestion question;

  Counter() {
    PlainFigures figures;
    figures.base = 0.1;
    plan.replicas = {PlainReplica("r0", figures)};
    plan.replicas[0].limits.max_sequences = 1;
    plan.shares = {{0, 0, 1}};
    RequestClass one;
    one.share = 1;
    one.samples = {{10, 1, 1}};
    one.limits.ttft_seconds = 0.15;
    one.required_attainment = 0.9;
    classes = {one};
    question.replicas = &plan;
    question.classes = &classes;
    question.arrival_variation = 0;
    question.requests = 2000;
  }
};

TEST_CASE("up to which rate a simulation attains what is asked") {
  Counter counter;
  const auto up_to = [&](double least, double most) {
    const absl::StatusOr<double> found = SimulatedGoodputUpTo(counter.question, least, most);
    REQUIRE(found.status().message() == "");
    return *found;
  };
  CHECK(up_to(0, 8) == 8);  // all that is promised
  CHECK(up_to(5, 8) == 8);
  for (const double least : {0.0, 1.0, 5.0}) {
    INFO("least " << least);
    const double found = up_to(least, 20);
    CHECK(found <= 10.05);
    CHECK(found >= 10 - 0.01 * 20);
  }
  CHECK(up_to(12, 20) == 0);  // not even the least
  CHECK(up_to(0, 400) == 0);  // not a sixteenth
  counter.classes[0].limits.ttft_seconds = 0.05;
  CHECK(up_to(0, 8) == 0);  // at no rate
  counter.plan.replicas[0].limits.max_sequences = 0;
  CHECK_FALSE(SimulatedGoodputUpTo(counter.question, 0, 8).ok());
}

}  // namespace
}  // namespace tessera::tests

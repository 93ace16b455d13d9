#include "scheduler/search/math/linear_program.h"

#include <catch2/catch.hpp>

namespace tessera::scheduler {
namespace {

// max 5x + 4y, 6x + 4y <= 24, x + 2y <= 6: the relaxation's optimum is 21 at (3, 1.5).
LinearProgram Textbook() {
  LinearProgram program;
  const int x = program.AddVariable(5, 0, kUnbounded, true),
            y = program.AddVariable(4, 0, kUnbounded, true);
  const int first = program.AddRow(-kUnbounded, 24), second = program.AddRow(-kUnbounded, 6);
  program.AddTerm(first, x, 6);
  program.AddTerm(first, y, 4);
  program.AddTerm(second, x, 1);
  program.AddTerm(second, y, 2);
  return program;
}

TEST_CASE("a relaxation, its duals, and the whole-number optimum") {
  const auto relaxed = Textbook().Solve(true);
  REQUIRE(relaxed.ok());
  CHECK(relaxed->objective == Approx(21));
  CHECK(relaxed->values[1] == Approx(1.5));
  CHECK(relaxed->duals[0] == Approx(0.75));
  CHECK(relaxed->duals[1] == Approx(0.5));
  const auto whole = Textbook().Solve(false);
  REQUIRE(whole.ok());
  CHECK(whole->objective == Approx(20));
  CHECK(whole->values == std::vector<double>{4, 0});
}

TEST_CASE("what has no optimum says so") {
  LinearProgram unbounded;
  unbounded.AddVariable(1, 0, kUnbounded, false);
  unbounded.AddRow(0, 1);
  CHECK(unbounded.Solve(true).status().code() == absl::StatusCode::kFailedPrecondition);
  LinearProgram impossible = Textbook();
  impossible.AddTerm(impossible.AddRow(100, kUnbounded), 0, 1);
  CHECK_FALSE(impossible.Solve(false).ok());
}

// Three kinds of replicas on two pools: the best mix is not the greedy one.
TEST_CASE("a packing that greed gets wrong") {
  LinearProgram program;
  const int pool = program.AddRow(-kUnbounded, 10);
  const double value[] = {10, 7}, size[] = {6, 5};
  for (int i = 0; i < 2; ++i)
    program.AddTerm(pool, program.AddVariable(value[i], 0, kUnbounded, true), size[i]);
  CHECK(program.Solve(false)->objective == Approx(14));
}

// Weights that all divide by two, and an odd room: branching alone would go through all of them.
TEST_CASE("who stops it at a node is asked no more") {
  LinearProgram program;
  const int room = program.AddRow(-kUnbounded, 10001);
  for (int i = 0; i < 30; ++i) {
    const double weight = 1000 + 2 * ((i * 37) % 101);
    program.AddTerm(room, program.AddVariable(weight, 0, 1, true), weight);
  }
  int asked = 0;
  const auto count = [&asked] { return ++asked > 1000000; };
  REQUIRE(program.Solve(false, 0, 300, count).ok());
  const int all = asked;
  CHECK(all > 50);
  asked = 0;
  const auto stopped = program.Solve(false, 0, 300, [&asked] { return ++asked >= 10; });
  CHECK(asked < all / 2);
  if (stopped.ok()) CHECK(stopped->objective <= 10001);
}

}  // namespace
}  // namespace tessera::scheduler

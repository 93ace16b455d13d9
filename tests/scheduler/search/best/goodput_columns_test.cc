// Columns of device sets and roles: what is near is found, devices are dealt once, and what split
// replicas did not serve is learnt.
#include "scheduler/search/best/goodput_columns.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "scheduler/search/best/goodput_moves.h"
#include "scheduler/search/layout/assemble.h"
#include "tests/scheduler/search/best/mixed_cloud.h"

namespace tessera::scheduler {
namespace {

using tests::MixedCloud;
using tests::PlacementOfParts;

double Serves(const MixedCloud& cloud, const std::vector<PlacedReplica>& replicas,
              ReplicaJudge* judge) {
  const absl::StatusOr<Placement> placement = Assemble(cloud.problem, replicas, judge);
  REQUIRE(placement.status().message() == "");  // refuses pools that are overdrawn
  return placement->requests_per_second;
}

TEST_CASE("sets near those that a linear program uses serve more than parts of pools") {
  const MixedCloud cloud;
  GroupLayouts groups(cloud.problem, GroupLayoutOptions());
  GoodputColumns columns(cloud.problem, &groups);
  columns.OfferAlone();
  const double alone = Serves(cloud, columns.program().Pack(false), groups.judge());
  const int64_t offered = columns.laid_out();
  constexpr int64_t kMaxLayouts = 2000;
  columns.Generate(false, kMaxLayouts);
  CHECK(columns.laid_out() > offered);
  CHECK(columns.laid_out() <= offered + kMaxLayouts);
  const double near = Serves(cloud, columns.program().Pack(false), groups.judge());
  CHECK(near == Approx(columns.program().packed_value()).epsilon(1e-6));
  CHECK(near > 1.1 * alone);
}

TEST_CASE("moves lead to what serves more, and leave what nothing beside is better than") {
  const MixedCloud cloud;
  GroupLayouts groups(cloud.problem, GroupLayoutOptions());
  GoodputColumns columns(cloud.problem, &groups);
  const Placement alone = PlacementOfParts(cloud, &groups, &columns);
  GoodputMoves moves(cloud.problem, &groups, &columns);
  const Placement once = moves.Improve(alone, 1);
  const Placement moved = moves.Improve(alone, 200);
  CHECK(once.requests_per_second >= alone.requests_per_second);
  CHECK(moved.requests_per_second > 1.05 * alone.requests_per_second);
  CHECK(moved.requests_per_second ==
        Approx(Serves(cloud, moved.replicas, groups.judge())).epsilon(1e-6));
  CHECK(moves.Improve(moved, 200).requests_per_second <= moved.requests_per_second * (1 + 1e-3));
}

TEST_CASE("stages may have one width in half of a pool and half of it in the rest") {
  const MixedCloud cloud;
  StageShapes shapes(cloud.model, MomentsOf(cloud.problem.samples), cloud.problem.options);
  ReplicaShaping shaping(cloud.problem, &shapes);
  REQUIRE(cloud.graph.pools()[0].count == 4);
  const PlacedReplica& replica = shaping.ShapeHalved({{0, 4}}, 2);
  std::vector<int> widths;
  for (const LayoutStage& stage : replica.stages) widths.push_back(stage.width);
  CHECK(widths == std::vector<int>{2, 1, 1});
}

// Shares of every pair of `dealt`, so small that all served `part` of what the least one can.
Placement ServedOf(const std::vector<PlacedReplica>& dealt, double part) {
  Placement placement;
  for (size_t p = 0; p < dealt.size(); ++p) {
    for (size_t d = 0; d < dealt.size(); ++d) {
      if (dealt[p].role != Role::kPrefill || dealt[d].role != Role::kDecode) continue;
      const double least =
          std::min(dealt[p].rate.requests_per_second, dealt[d].rate.requests_per_second);
      placement.shares.push_back({static_cast<int>(p), static_cast<int>(d), part * least});
    }
  }
  return placement;
}

TEST_CASE("split replicas that served less than their columns say come down") {
  const MixedCloud cloud;
  GroupLayouts groups(cloud.problem, GroupLayoutOptions());
  GoodputColumns columns(cloud.problem, &groups);
  columns.OfferAlone();
  columns.Generate(true, 400);
  const std::vector<PlacedReplica> first = columns.program().Pack(true);
  const double before = columns.program().packed_value();
  REQUIRE(!ServedOf(first, 1).shares.empty());
  CHECK(!columns.program().Learn(first, ServedOf(first, 100)));  // more than they say
  CHECK(columns.program().Learn(first, ServedOf(first, 1e-3)));
  // Others that serve as much take their place until they are known as well.
  bool learnt = true;
  for (int deal = 0; deal < 30 && learnt; ++deal) {
    const std::vector<PlacedReplica> dealt = columns.program().Pack(true);
    learnt = columns.program().Learn(dealt, ServedOf(dealt, 1e-3));
  }
  CHECK(columns.program().packed_value() < before * (1 - 1e-3));
  columns.program().Pack(false);
  const double whole = columns.program().packed_value();
  columns.program().Pack(true);
  CHECK(columns.program().packed_value() >= whole * (1 - 1e-3));
}

}  // namespace
}  // namespace tessera::scheduler

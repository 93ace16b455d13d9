#include "scheduler/search/baselines/layer_routes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "scheduler/search/layout/loaded_links.h"
#include "scheduler/search/math/linear_program.h"

namespace tessera::scheduler {
namespace {

constexpr double kLessRows = 0.7;  // from one number of rows that is tried to the next
constexpr int kMostLess = 16;      // such steps
constexpr double kLeastRows = 1e-6;
constexpr double kCurve[] = {0.15, 0.5, 1};  // of the rows, where a layer's curve is sampled

// Layers of a holder between two places where routes may change.
struct Segment {
  StageSpec stage;
  int begin = 0, end = 0;
};

struct HolderFigures {
  StageSpec stage;
  std::vector<Segment> segments;
  double overhead_seconds = 0;
  double kv_bytes_per_layer_token = 0;  // of the fullest rank
  double kv_bytes = 0;                  // of it, usable
};

StageSpec StageOf(const PlacementProblem& problem, const LayerHolder& holder, int first_layer,
                  int layers) {
  return MakeStage(OnWholeGraph(problem, Role::kBoth), {holder.pool, holder.width, layers},
                   first_layer);
}

RankMemory MemoryOf(const PlacementProblem& problem, const StageSpec& stage) {
  return MemoryOfRank(*problem.model, stage, *stage.ranks.front(), problem.options.memory,
                      stage.layers < problem.model->layers);
}

class RouteProgram {
 public:
  RouteProgram(const PlacementProblem& problem, const std::vector<LayerHolder>& holders,
               const LayerRouteOptions& options)
      : problem_(problem),
        model_(*problem.model),
        holders_(holders),
        options_(options),
        lengths_(MomentsOf(problem.samples)) {}

  RoutedLayers Best() {
    RoutedLayers best;
    if (lengths_.decode_steps <= 0 || !Describe()) return best;
    ListRoutes();
    if (routes_.empty()) return best;
    const std::vector<double> most = Solve(kUnbounded);
    double rows = 0;
    for (const double of_route : most) rows += of_route;
    for (int i = 0; i < kMostLess && rows > kLeastRows; ++i, rows *= kLessRows) {
      RoutedLayers routed = Judged(Solve(rows));
      const bool worse = routed.requests_per_second <= best.requests_per_second;
      if (worse && best.requests_per_second > 0) break;
      if (!worse) best = std::move(routed);
    }
    return best;
  }

 private:
  // False where a holder does not fit.
  bool Describe() {
    std::set<int> places;
    for (const LayerHolder& holder : holders_) {
      places.insert(holder.first_layer);
      places.insert(holder.end());
    }
    for (const LayerHolder& holder : holders_) {
      if (!HolderFits(problem_, holder)) return false;
      HolderFigures& figures = figures_.emplace_back();
      figures.stage = StageOf(problem_, holder, holder.first_layer, holder.layers);
      figures.overhead_seconds = figures.stage.ranks.front()->step_overhead_seconds;
      const RankMemory memory = MemoryOf(problem_, figures.stage);
      figures.kv_bytes_per_layer_token = memory.kv_bytes_per_token / holder.layers;
      figures.kv_bytes = (1 - problem_.options.kv_headroom) * memory.free_bytes();
      int begin = holder.first_layer;
      for (auto at = places.upper_bound(begin); begin < holder.end(); begin = *at, ++at)
        figures.segments.push_back({StageOf(problem_, holder, begin, *at - begin), begin, *at});
    }
    const double q =
        lengths_.uncached_prompt_tokens / lengths_.decode_steps;  // prompt rows per decode row
    rows_of_step_ = static_cast<double>(problem_.options.memory.max_step_tokens) / (1 + q);
    bytes_of_row_ = (1 + q) * static_cast<double>(model_.hidden) * model_.wire_bytes_per_element;
    return true;
  }

  // Breadth first: routes of few holders come first.
  void ListRoutes() {
    std::vector<LayerRoute> open = {LayerRoute()};
    size_t longest = std::numeric_limits<size_t>::max();
    const auto most = static_cast<size_t>(options_.most_routes);
    for (size_t depth = 1; !open.empty() && depth <= holders_.size() && depth <= longest; ++depth) {
      std::vector<LayerRoute> next;
      for (const LayerRoute& route : open) {
        if (routes_.size() >= most || next.size() >= 4 * most) break;
        Extend(route, &next);
      }
      open = std::move(next);
      if (!routes_.empty() && longest > holders_.size())
        longest = depth + static_cast<size_t>(options_.longer_routes);
    }
  }

  void Extend(const LayerRoute& route, std::vector<LayerRoute>* next) {
    const int from =
        route.parts.empty() ? 0 : route.parts.back().first_layer + route.parts.back().layers;
    for (size_t h = 0; h < holders_.size(); ++h) {
      if (holders_[h].first_layer > from || holders_[h].end() <= from) continue;
      const bool met = std::any_of(route.parts.begin(), route.parts.end(), [&](const auto& part) {
        return part.holder == static_cast<int>(h);
      });
      if (met) continue;
      // To the holder's end first: a route that leaves early is rarely better.
      const std::vector<Segment>& segments = figures_[h].segments;
      for (auto segment = segments.rbegin(); segment != segments.rend() && segment->end > from;
           ++segment) {
        LayerRoute longer = route;
        longer.parts.push_back({static_cast<int>(h), from, segment->end - from});
        (segment->end == model_.layers ? routes_ : *next).push_back(std::move(longer));
      }
    }
  }

  // --- The program ---

  // Rows of every route: the most there can be (rows: unbounded), or so many in the shortest
  // period. Empty where there is no answer.
  std::vector<double> Solve(double rows) const {
    const bool most = rows == kUnbounded;
    LinearProgram program;
    const int period = program.AddVariable(most ? 0 : -1, 0, kUnbounded, false);
    std::vector<int> variables;
    const int total = program.AddRow(most ? -kUnbounded : rows, most ? kUnbounded : rows);
    for (size_t r = 0; r < routes_.size(); ++r) {
      variables.push_back(program.AddVariable(most ? 1 : 0, 0, kUnbounded, false));
      program.AddTerm(total, variables.back(), 1);
    }
    for (size_t h = 0; h < holders_.size(); ++h) {
      AddRoom(h, variables, &program);
      if (!most) AddTime(h, rows, period, variables, &program);
    }
    if (!most) AddLinks(rows, period, variables, &program);
    const absl::StatusOr<LinearProgram::Solution> solution = program.Solve(true);
    std::vector<double> answer;
    for (size_t r = 0; solution.ok() && r < routes_.size(); ++r)
      answer.push_back(std::max(0.0, solution->values[static_cast<size_t>(variables[r])]));
    return answer;
  }

  void AddRoom(size_t h, const std::vector<int>& variables, LinearProgram* program) const {
    const double copies = holders_[h].copies;
    const int kv = program->AddRow(-kUnbounded, copies * figures_[h].kv_bytes);
    const int entries = program->AddRow(-kUnbounded, copies * problem_.options.max_sequences);
    const int step = program->AddRow(-kUnbounded, copies * rows_of_step_);
    for (size_t r = 0; r < routes_.size(); ++r) {
      const auto holders = static_cast<double>(routes_[r].parts.size());
      for (const LayerRoute::Part& part : routes_[r].parts) {
        if (part.holder != static_cast<int>(h)) continue;
        program->AddTerm(kv, variables[r], holders * KvBytesOfRow(part));
        if (part.first_layer == 0) program->AddTerm(entries, variables[r], holders);
        program->AddTerm(step, variables[r], 1);
      }
    }
  }

  double KvBytesOfRow(const LayerRoute::Part& part) const {
    return lengths_.mean_decode_context() * part.layers *
           figures_[static_cast<size_t>(part.holder)].kv_bytes_per_layer_token;
  }

  // Overhead and layers within the period; layers above every chord of their curve.
  void AddTime(size_t h, double rows, int period, const std::vector<int>& variables,
               LinearProgram* program) const {
    const double copies = holders_[h].copies;
    const int time = program->AddRow(-kUnbounded, -figures_[h].overhead_seconds);
    program->AddTerm(time, period, -1);
    for (const Segment& segment : figures_[h].segments) {
      std::vector<int> passing;
      for (size_t r = 0; r < routes_.size(); ++r) {
        if (Passes(routes_[r], h, segment)) passing.push_back(variables[r]);
      }
      if (passing.empty()) continue;
      const int seconds = program->AddVariable(0, 0, kUnbounded, false);
      program->AddTerm(time, seconds, 1);
      for (size_t i = 0; i + 1 < std::size(kCurve); ++i) {
        const double low = kCurve[i] * rows, high = kCurve[i + 1] * rows;
        const double at_low = SegmentSeconds(segment, low), at_high = SegmentSeconds(segment, high);
        const double slope = (at_high - at_low) / (high - low);
        const int chord = program->AddRow(at_low - slope * low, kUnbounded);
        program->AddTerm(chord, seconds, 1);
        for (const int variable : passing) program->AddTerm(chord, variable, -slope / copies);
      }
    }
  }

  static bool Passes(const LayerRoute& route, size_t h, const Segment& segment) {
    return std::any_of(route.parts.begin(), route.parts.end(), [&](const auto& part) {
      return part.holder == static_cast<int>(h) && part.first_layer <= segment.begin &&
             part.first_layer + part.layers >= segment.end;
    });
  }

  double SegmentSeconds(const Segment& segment, double rows) const {
    return StageSeconds(model_, segment.stage, Work(rows)) -
           segment.stage.ranks.front()->step_overhead_seconds;
  }

  StepWork Work(double rows) const {
    return SteadyWork(Role::kBoth, lengths_, rows, problem_.options);
  }

  using Hop = std::pair<int, int>;  // holders
  std::map<Hop, std::vector<size_t>> RoutesByHop() const {
    std::map<Hop, std::vector<size_t>> hops;
    for (size_t r = 0; r < routes_.size(); ++r) {
      const auto& parts = routes_[r].parts;
      for (size_t i = 0; i + 1 < parts.size(); ++i)
        hops[{parts[i].holder, parts[i + 1].holder}].push_back(r);
    }
    return hops;
  }

  // Leader pairs that a hop is spread over.
  double Pairs(const Hop& hop) const {
    return std::min(Of(hop.first).copies, Of(hop.second).copies);
  }
  const LayerHolder& Of(int holder) const { return holders_[static_cast<size_t>(holder)]; }
  int MachineOf(int holder) const {
    return problem_.graph->pools()[static_cast<size_t>(Of(holder).pool)].machine;
  }
  const LinkSpec& LinkOf(const Hop& hop) const {
    return problem_.graph->Between(MachineOf(hop.first), MachineOf(hop.second));
  }
  double HopSecondsAt(const Hop& hop, double rows) const {
    return HopSeconds(model_, LinkOf(hop),
                      figures_[static_cast<size_t>(hop.second)].stage.communicator,
                      Work(rows).rows());
  }

  void AddLinks(double rows, int period, const std::vector<int>& variables,
                LinearProgram* program) const {
    LoadedLinks links(*problem_.graph);
    for (const auto& [hop, routes] : RoutesByHop()) {
      const double low = HopSecondsAt(hop, rows / 2), high = HopSecondsAt(hop, rows);
      const double slope = (high - low) / (rows / 2);
      const int time = program->AddRow(-kUnbounded, slope * rows - high);
      program->AddTerm(time, period, -1);
      for (const size_t r : routes) {
        program->AddTerm(time, variables[r], slope / Pairs(hop));
        links.Load(MachineOf(hop.first), MachineOf(hop.second), r, bytes_of_row_);
      }
    }
    for (const LoadedLink& link : links.Take()) {
      const int carried = program->AddRow(-kUnbounded, 0);
      program->AddTerm(carried, period, -link.rate);
      for (const auto& [r, bytes] : link.uses) program->AddTerm(carried, variables[r], bytes);
    }
  }

  // --- The cost model's word ---

  RoutedLayers Judged(const std::vector<double>& rows) const {
    RoutedLayers routed;
    double sum = 0;
    std::vector<double> kept = rows;
    for (double& of_route : kept) {
      if (of_route < kLeastRows) of_route = 0;
      sum += of_route;
    }
    if (sum <= 0) return routed;
    double slowest_tpot = 0;
    routed.period_seconds = PeriodOfRows(kept, &slowest_tpot);
    if (slowest_tpot > problem_.options.max_tpot_seconds) return routed;
    routed.requests_per_second = sum / routed.period_seconds / lengths_.decode_steps;
    for (size_t r = 0; r < routes_.size(); ++r) {
      if (kept[r] <= 0) continue;
      routed.routes.push_back(routes_[r]);
      routed.routes.back().rows = kept[r];
    }
    return routed;
  }

  double PeriodOfRows(const std::vector<double>& rows, double* slowest_tpot) const {
    std::vector<double> busy(holders_.size(), 0);
    double period = 0;
    for (size_t h = 0; h < holders_.size(); ++h) {
      for (const Segment& segment : figures_[h].segments) {
        double passing = 0;
        for (size_t r = 0; r < routes_.size(); ++r) {
          if (rows[r] > 0 && Passes(routes_[r], h, segment)) passing += rows[r];
        }
        if (passing > 0) busy[h] += SegmentSeconds(segment, passing / holders_[h].copies);
      }
      if (busy[h] > 0) busy[h] += figures_[h].overhead_seconds;
      period = std::max(period, busy[h]);
    }
    std::map<Hop, double> hop_seconds;
    LoadedLinks links(*problem_.graph);
    for (const auto& [hop, routes] : RoutesByHop()) {
      double passing = 0;
      for (const size_t r : routes) passing += rows[r];
      if (passing <= 0) continue;
      hop_seconds[hop] = HopSecondsAt(hop, passing / Pairs(hop));
      period = std::max(period, hop_seconds[hop]);
      links.Load(MachineOf(hop.first), MachineOf(hop.second), 0, bytes_of_row_ * passing);
    }
    for (const LoadedLink& link : links.Take()) {
      double bytes = 0;
      for (const auto& use : link.uses) bytes += use.second;
      period = std::max(period, bytes / link.rate);
    }
    return WithRoundTrips(rows, busy, hop_seconds, period, slowest_tpot);
  }

  // As many micro-batches as holders are on a route: their way round must fit as many periods.
  double WithRoundTrips(const std::vector<double>& rows, const std::vector<double>& busy,
                        const std::map<Hop, double>& hop_seconds, double period,
                        double* slowest_tpot) const {
    size_t most_holders = 0;
    for (size_t r = 0; r < routes_.size(); ++r) {
      if (rows[r] <= 0) continue;
      const auto& parts = routes_[r].parts;
      most_holders = std::max(most_holders, parts.size());
      double seconds = 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        seconds += busy[static_cast<size_t>(parts[i].holder)];
        if (i + 1 < parts.size()) seconds += hop_seconds.at({parts[i].holder, parts[i + 1].holder});
      }
      if (parts.size() > 1) {
        const Hop back = {parts.back().holder, parts.front().holder};
        seconds += TransferSeconds(LinkOf(back), kTokenIdBytes * Work(rows[r]).sampled_rows);
      }
      period = std::max(period, seconds / static_cast<double>(parts.size()));
    }
    *slowest_tpot = static_cast<double>(most_holders) * period;
    return period;
  }

  const PlacementProblem& problem_;
  const ModelShape& model_;
  const std::vector<LayerHolder>& holders_;
  const LayerRouteOptions options_;
  const LengthMoments lengths_;
  std::vector<HolderFigures> figures_;
  std::vector<LayerRoute> routes_;
  double rows_of_step_ = 0;  // decode rows of a step that is full
  double bytes_of_row_ = 0;  // activations of a decode row and the prompt rows that go with it
};

}  // namespace

bool HolderFits(const PlacementProblem& problem, const LayerHolder& holder) {
  const RankMemory memory =
      MemoryOf(problem, StageOf(problem, holder, holder.first_layer, holder.layers));
  return memory.kv_tokens() > 0 &&
         memory.kv_tokens() >= MomentsOf(problem.samples).max_sequence_tokens;
}

RoutedLayers BestRoutes(const PlacementProblem& problem, const std::vector<LayerHolder>& holders,
                        const LayerRouteOptions& options) {
  return RouteProgram(problem, holders, options).Best();
}

}  // namespace tessera::scheduler

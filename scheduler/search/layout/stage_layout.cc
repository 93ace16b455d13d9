#include "scheduler/search/layout/stage_layout.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "absl/strings/str_format.h"

namespace tessera::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// At twice the rows a period at most doubles, so a layout within this factor of the incumbent may
// still beat it between two grid points.
constexpr double kGridSlack = 2.0;
constexpr double kCoarseSlack = 1.25;
// Close to the rows of the best there is little between two points.
constexpr double kRefineSlack = 1.05;
constexpr int kMaxRefinements = 12;
constexpr double kRefineWithin = 1.2;

Communicator Inside(const ClusterGraph& graph, const LayoutPool& pool, int width) {
  return {{width, graph.machines()[static_cast<size_t>(pool.machine)].inside, false}};
}

// The ranks of a mixed stage: as many in each of its machines, or all as far as the farthest two.
Communicator JoinedParts(const LayoutProblem& problem, const LayoutStage& stage) {
  std::map<int, int> ranks;  // by machine
  ForEachPart(stage, [&](const LayoutPart& part) {
    ranks[problem.pools[static_cast<size_t>(part.pool)].machine] += part.width;
  });
  const int machines = static_cast<int>(ranks.size()), each = ranks.begin()->second;
  LinkSpec between = problem.graph->Between(ranks.begin()->first, ranks.rbegin()->first);
  bool even = true;
  for (const auto& [from, count] : ranks) {
    even = even && count == each;
    for (const auto& [to, other] : ranks) {
      const LinkSpec& link = problem.graph->Between(from, to);
      if (from != to && link.bytes_per_second < between.bytes_per_second) between = link;
    }
  }
  const LinkSpec& inside = problem.graph->Between(ranks.begin()->first, ranks.begin()->first);
  if (machines == 1) return {{each, inside, false}};
  if (!even || each == 1) return {{WidthOf(stage), between, false}};
  return {{each, inside, false}, {machines, between, true}};
}

// One partial pipeline.
struct Item {
  double peak = 0;  // slowest stage or hop
  double sum = 0;   // of stages and hops
  int stages = 0;
  int parent_state = -1;
  int parent_item = -1;
  LayoutStage last;
};

class LayoutSearch {
 public:
  explicit LayoutSearch(const LayoutProblem& problem) : problem_(problem), model_(*problem.model) {
    pools_ = static_cast<int>(problem.pools.size());
    used_states_ = 1;
    for (const LayoutPool& pool : problem.pools) {
      radix_.push_back(used_states_);
      used_states_ *= pool.count + 1;
      devices_ += pool.count;
    }
    best_.rate.requests_per_second = problem.known_rate;
    by_depth_.resize(static_cast<size_t>(devices_) + 1);
    if (!problem.refine) slack_ = kCoarseSlack;
  }

  Layout Run() {
    const int max_stages = std::min(devices_, model_.layers);
    if (problem_.role == Role::kPrefill || problem_.lengths.decode_steps <= 0) {
      if (problem_.least_latency) micro_batches_ = 1;  // its period is the sum of all stages
      Solve(0, LeastKv());
      if (problem_.least_latency && !best_.stages.empty())
        best_.rate = RateOf(MakeReplica(problem_, best_.stages));
      return best_;
    }
    // Downwards: large steps tend to be the best ones, and an early incumbent prunes the rest.
    for (double b = std::exp2(std::floor(std::log2(problem_.options.max_sequences))); b >= 1;
         b /= 2) {
      // A coarse look takes depths by twos as well.
      for (int stages = 1; stages <= max_stages; stages += problem_.refine ? 1 : stages) {
        Solve(b, KvFor(b, stages));
      }
    }
    // Room for few sequences: the largest K wins, whatever the rows.
    Solve(1, LeastKv());
    if (problem_.refine) RefineUntilSettled();
    if (problem_.exact) Prove();
    return best_;
  }

 private:
  void RefineUntilSettled() {
    for (int i = 0; i < kMaxRefinements && !best_.stages.empty(); ++i) {
      const double before = best_.rate.requests_per_second;
      // Around the best of each depth: they differ in K, and so in the rows that suit them.
      const std::vector<ReplicaRate> starts = by_depth_;
      for (const ReplicaRate& start : starts) {
        if (start.requests_per_second * kRefineWithin >= best_.rate.requests_per_second)
          Refine(start);
      }
      if (best_.rate.requests_per_second <= before * (1 + 1e-12)) break;
    }
  }

  // Every K that some stage has, capped where other limits take over.
  std::vector<double> AllRooms() {
    std::vector<double> rooms;
    Tabulate(1, 0);
    double cap = LeastKv();
    for (double more = cap * 2;
         LargestRows(problem_.role, problem_.lengths, problem_.options, more, 1) >
         LargestRows(problem_.role, problem_.lengths, problem_.options, cap, 1);
         more *= 2) {
      cap = more;
    }
    for (const std::vector<WidthTable>& pool : widths_) {
      for (const WidthTable& table : pool) {
        for (int first = 0; first < model_.layers; ++first) {
          // Uniform layers: an inner stage is like any other inner stage of that length.
          if (model_.uniform() && first > 1 && first + 1 < model_.layers) {
            rooms.push_back(KvRoom(table, first, model_.layers - first));
            continue;
          }
          for (int layers = 1; first + layers <= model_.layers; ++layers) {
            rooms.push_back(KvRoom(table, first, layers));
          }
        }
      }
    }
    for (double& room : rooms) room = std::min(std::floor(room), cap);
    std::erase_if(rooms, [&](double room) { return room < LeastKv(); });
    std::sort(rooms.begin(), rooms.end());
    rooms.erase(std::unique(rooms.begin(), rooms.end()), rooms.end());
    return rooms;
  }

  void Prove() {
    if (problem_.role == Role::kPrefill || problem_.lengths.decode_steps <= 0)
      return;  // Run was exact
    const int most = std::min(devices_, model_.layers);
    slack_ = 1;
    for (const double kv : AllRooms()) {
      for (int stages = 1; stages <= most; ++stages) ProveAt(kv, stages);
    }
    slack_ = kGridSlack;
  }

  void ProveAt(double kv, int stages) {
    int m = stages;
    double rows = LargestRows(problem_.role, problem_.lengths, problem_.options, kv, m);
    if (rows < 1 && m > 1) {
      m = std::max(1, static_cast<int>(rows * m));
      rows = LargestRows(problem_.role, problem_.lengths, problem_.options, kv, m);
    }
    only_stages_ = stages;
    micro_batches_ = m;
    Solve(rows, kv);
    // Where the limit on TPOT binds, the rate is b*m/(TPOT*E[o]): any better one needs more rows
    // than this.
    const double limit = problem_.options.max_tpot_seconds;
    while (std::isfinite(limit)) {
      const double before = best_.rate.requests_per_second;
      const double b = before * problem_.lengths.decode_steps * limit / m * (1 + 1e-9);
      if (b >= rows || b <= 0) break;
      Solve(b, kv);
      if (best_.rate.requests_per_second <= before) break;
    }
    only_stages_ = 0;
    micro_batches_ = 0;
  }

  // How many layers the devices that are not in `used` can take at most without any stage lasting
  // longer than worst_peak_: each device at its best share of a layer.
  void BoundReach() {
    std::vector<double> best(static_cast<size_t>(pools_), 0);
    for (int p = 0; p < pools_; ++p) {
      for (size_t i = 0; i < widths_[p].size(); ++i) {
        const double layer = widths_[p][i].fastest_layer;
        best[p] = std::max(best[p], 1 / (layer * static_cast<double>(i + 1)));
      }
    }
    reach_.assign(static_cast<size_t>(used_states_), 0);
    for (int used = 0; used < used_states_; ++used) {
      double rate = 0;
      for (int p = 0; p < pools_; ++p)
        rate += best[p] * (problem_.pools[p].count - UsedOf(used, p));
      reach_[used] = worst_peak_ * rate * (1 + 1e-9);
    }
  }

  double LeastKv() const {
    return LeastKvTokens(problem_.role, problem_.lengths, problem_.options);
  }

  double KvFor(double b, int stages) const {
    const double rows = b * stages * problem_.lengths.mean_decode_context();
    return std::max(LeastKv(), rows / (1 - problem_.options.kv_headroom));
  }

  void Refine(const ReplicaRate& at) {
    slack_ = kRefineSlack;
    const double kv = at.kv_capacity_tokens;
    for (const double rows : {1.0, 1.02, 1.05, 1.1, 1.2, 1.4, 1.8, 0.95, 0.85, 0.7, 0.5}) {
      const double b = at.decode_rows * rows;
      Solve(b, std::max(LeastKv(), kv * rows));
      const int most = std::min(devices_, model_.layers);
      for (int stages = 1; stages <= most; ++stages) Solve(b, KvFor(b, stages));
    }
  }

  size_t StateOf(int layer, int used, int last) const {
    return (static_cast<size_t>(layer) * used_states_ + used) * pools_ + last;
  }
  int UsedOf(int used, int pool) const {
    return used / radix_[pool] % (problem_.pools[pool].count + 1);
  }

  // Seconds and KV room of one stage; infinite where it has no room for `kv`.
  void Tabulate(double b, double kv) {
    const StepWork work = SteadyWork(problem_.role, problem_.lengths, b, problem_.options);
    rows_ = work.rows();
    return_bytes_ = kTokenIdBytes * work.sampled_rows;
    widths_.assign(pools_, {});
    for (int p = 0; p < pools_; ++p) {
      const int most = std::min(problem_.pools[p].count, MaxWidth(model_));
      for (int width = 1; width <= most; ++width) widths_[p].push_back(TableOf(p, width, work, kv));
    }
  }

  struct WidthTable {
    double step_overhead = 0;
    double head = 0;
    std::vector<double> until_layer;  // seconds of layers [0, l)
    double fastest_layer = 0;         // seconds of the layer that takes least
    RankMemory plain;                 // a stage of one layer, neither embedding nor head
    double table_bytes = 0;           // of embedding or head
    double kv = 0;
    std::vector<double> weights_until;  // bytes of layers [0, l), and of a step's rows in windows
    std::vector<double> kv_until;       // bytes of a token, with its part of a sequence's windows
    std::vector<double> state_until;    // of a sequence
    double embedding_bytes = 0;
    double head_memory = 0;  // with its logits
  };

  WidthTable TableOf(int pool_index, int width, const StepWork& work, double kv) const {
    const LayoutPool& pool = problem_.pools[pool_index];
    const RankShare share = FullestShare(model_, width);
    const Communicator inside = Inside(*problem_.graph, pool, width);
    WidthTable table;
    table.kv = kv;
    table.step_overhead = pool.spec->step_overhead_seconds;
    table.head = HeadSeconds(model_, *pool.spec, share, inside, work);
    table.until_layer.assign(model_.layers + 1, 0);
    table.weights_until.assign(model_.layers + 1, 0);
    table.kv_until.assign(model_.layers + 1, 0);
    table.state_until.assign(model_.layers + 1, 0);
    std::vector<double> of_kind(model_.kinds.size(), kInfinity);
    for (int l = 0; l < model_.layers; ++l) {
      double& seconds = of_kind[static_cast<size_t>(model_.kind_index(l))];
      if (seconds == kInfinity) seconds = LayerSeconds(model_, *pool.spec, share, inside, work, l);
      table.until_layer[l + 1] = table.until_layer[l] + seconds;
      table.fastest_layer = l == 0 ? seconds : std::min(table.fastest_layer, seconds);
      const double window = WindowKvBytesPerTokenLayer(model_, share, l);
      table.weights_until[l + 1] =
          table.weights_until[l] + LayerWeightBytes(model_, share, l) +
          window * static_cast<double>(problem_.options.memory.max_step_tokens);
      table.kv_until[l + 1] = table.kv_until[l] + EndlessKvBytesPerTokenLayer(model_, share, l) +
                              window * WindowsPerToken();
      table.state_until[l + 1] = table.state_until[l] + StateBytesPerLayer(model_, share, l);
    }
    const auto memory = [&](bool embedding, bool head) {
      StageSpec stage = MakeStage(problem_, {pool_index, width, 1}, 0);
      stage.holds_embedding = embedding;
      stage.holds_head = head;
      return MemoryOfRank(model_, stage, 0, problem_.options.memory, true);
    };
    table.plain = memory(false, false);
    table.embedding_bytes = table.plain.free_bytes() - memory(true, false).free_bytes();
    table.head_memory = table.plain.free_bytes() - memory(false, true).free_bytes();
    table.plain.weight_bytes = 0;
    return table;
  }

  // Tokens of windows that come with a token of KV at least: those of one sequence of full length.
  double WindowsPerToken() const {
    return model_.windows.empty() ? 0
                                  : static_cast<double>(model_.longest_window()) /
                                        static_cast<double>(model_.max_positions);
  }

  double RoomOf(const WidthTable& table, int first, int layers) const {
    double room = table.plain.free_bytes() -
                  (table.weights_until[first + layers] - table.weights_until[first]);
    const bool head = first + layers == model_.layers;
    if (first == 0) room -= table.embedding_bytes;
    if (head) room -= table.head_memory;
    if (first > 0 || !head) return room;
    // One stage alone has no hop buffers, and tied tables stand once.
    room += 2.0 * problem_.options.memory.max_step_tokens * model_.hidden *
            model_.wire_bytes_per_element;
    return model_.tied_embeddings ? room + table.embedding_bytes : room;
  }

  // Bytes of a token.
  static double KvBytes(const WidthTable& table, int first, int layers) {
    return table.kv_until[first + layers] - table.kv_until[first];
  }

  double KvRoom(const WidthTable& table, int first, int layers) const {
    const double room = RoomOf(table, first, layers), token = KvBytes(table, first, layers);
    const double state = table.state_until[first + layers] - table.state_until[first];
    if (state <= 0) return room / token;
    return CutSeats(model_, problem_.options.memory, room, token, state).tokens;
  }

  bool HasRoom(const WidthTable& table, int first, int layers) const {
    if (model_.keeps_states()) return KvRoom(table, first, layers) >= table.kv;
    return RoomOf(table, first, layers) >= table.kv * KvBytes(table, first, layers);
  }

  double StageSecondsOf(const WidthTable& table, int first, int layers) const {
    if (!HasRoom(table, first, layers)) return kInfinity;
    return table.step_overhead + table.until_layer[first + layers] - table.until_layer[first] +
           (first + layers == model_.layers ? table.head : 0.0);
  }

  double Hop(int from, int to, int width) const {
    const LayoutPool& a = problem_.pools[from];
    const LayoutPool& b = problem_.pools[to];
    return HopSeconds(model_, problem_.graph->Between(a.machine, b.machine),
                      Inside(*problem_.graph, b, width), rows_);
  }

  double WayBack(int last, int first) const {
    const LinkSpec& link =
        problem_.graph->Between(problem_.pools[last].machine, problem_.pools[first].machine);
    return TransferSeconds(link, return_bytes_);
  }

  // Runs the dynamic program for (b, K) and judges what it ends with.
  bool Stopped() {
    stopped_ = stopped_ || (problem_.stop && problem_.stop());
    return stopped_;
  }

  void Solve(double b, double kv) {
    if (Stopped()) return;
    Tabulate(b, kv);
    hops_.assign(static_cast<size_t>(pools_) * pools_, {});
    for (int from = 0; from < pools_; ++from) {
      for (int to = 0; to < pools_; ++to) {
        for (int width = 1; width <= problem_.pools[to].count; ++width) {
          hops_[static_cast<size_t>(from) * pools_ + to].push_back(Hop(from, to, width));
        }
      }
    }
    worst_peak_ = PeakLimit(b);
    BoundReach();
    if (model_.layers > reach_[0]) return;
    for (int first = 0; first < pools_; ++first) {
      fronts_.assign(StateOf(model_.layers, 0, 0) + static_cast<size_t>(used_states_) * pools_, {});
      Item nothing;
      Extend(nothing, -1, -1, 0, 0, -1, first);
      for (int layer = 1; layer < model_.layers; ++layer) {
        if (Stopped()) return;
        for (int used = 0; used < used_states_; ++used) {
          for (int last = 0; last < pools_; ++last) {
            const size_t state = StateOf(layer, used, last);
            for (size_t i = 0; i < fronts_[state].size(); ++i) {
              const Item item = fronts_[state][i];
              for (int next = 0; next < pools_; ++next) {
                Extend(item, static_cast<int>(state), static_cast<int>(i), layer, used, last, next);
              }
            }
          }
        }
      }
      Judge(first);
    }
  }

  double PeakLimit(double b) const {
    // Who only prefills has no time per output token.
    const bool decodes = problem_.role != Role::kPrefill && problem_.lengths.decode_steps > 0;
    const double limit =
        decodes ? problem_.options.max_tpot_seconds / std::max(1, micro_batches_) : kInfinity;
    if (best_.rate.requests_per_second <= 0) return limit;
    double work = b / std::max(1e-9, problem_.lengths.decode_steps);
    if (b <= 0) {
      work = static_cast<double>(problem_.options.memory.max_step_tokens) /
             std::max(1.0, problem_.lengths.uncached_prompt_tokens);
    }
    return std::min(limit, slack_ * work / best_.rate.requests_per_second);
  }

  // Adds every stage of pool `next` behind `item`.
  void Extend(const Item& item, int state, int index, int layer, int used, int last, int next) {
    const int free = problem_.pools[next].count - UsedOf(used, next);
    const int step = model_.one_stage ? model_.layers : problem_.layer_step;
    for (int width = 1; width <= std::min<int>(free, widths_[next].size()); ++width) {
      const WidthTable& table = widths_[next][width - 1];
      const double hop =
          last < 0 ? 0.0 : hops_[static_cast<size_t>(last) * pools_ + next][width - 1];
      if (hop > worst_peak_) continue;
      const int rest = model_.layers - layer;
      for (int layers = rest % step == 0 ? step : rest % step; layers <= rest; layers += step) {
        const double seconds = StageSecondsOf(table, layer, layers);
        if (seconds > worst_peak_) {
          // Longer stages are slower and heavier; but one stage alone needs no hop buffers.
          if (layer > 0 || layers == rest) break;
          layers = rest - step;
          continue;
        }
        const int next_used = used + width * radix_[next];
        if (rest - layers > reach_[next_used]) continue;
        Item next_item;
        next_item.peak = std::max({item.peak, seconds, hop});
        next_item.sum = item.sum + seconds + hop;
        next_item.stages = item.stages + 1;
        next_item.parent_state = state;
        next_item.parent_item = index;
        next_item.last = {next, width, layers};
        Insert(StateOf(layer + layers, next_used, next), next_item);
      }
    }
  }

  void Insert(size_t state, const Item& item) {
    std::vector<Item>& front = fronts_[state];
    for (const Item& other : front) {
      if (other.stages == item.stages && other.peak <= item.peak && other.sum <= item.sum) return;
    }
    // Items keep their places while others point at them: a state is complete before it is
    // extended.
    std::erase_if(front, [&](const Item& other) {
      return other.stages == item.stages && item.peak <= other.peak && item.sum <= other.sum;
    });
    front.push_back(item);
  }

  // Whatever ends at the last layer: per number of stages the shortest period goes to the cost
  // model.
  void Judge(int first) {
    std::vector<double> period(static_cast<size_t>(devices_) + 1, kInfinity);
    std::vector<const Item*> item(static_cast<size_t>(devices_) + 1, nullptr);
    for (int used = 0; used < used_states_; ++used) {
      for (int last = 0; last < pools_; ++last) {
        for (const Item& end : fronts_[StateOf(model_.layers, used, last)]) {
          double sum = end.sum, peak = end.peak;
          if (end.stages > 1) {
            const double back = WayBack(last, first);
            sum += back;
            peak = std::max(peak, back);
          }
          if (only_stages_ > 0 && end.stages != only_stages_) continue;
          const double p = std::max(peak, sum / (micro_batches_ > 0 ? micro_batches_ : end.stages));
          if (p >= period[end.stages]) continue;
          period[end.stages] = p;
          item[end.stages] = &end;
        }
      }
    }
    for (const Item* end : item) {
      if (end != nullptr) Consider(Trace(*end));
    }
  }

  std::vector<LayoutStage> Trace(const Item& end) const {
    std::vector<LayoutStage> stages = {end.last};
    int state = end.parent_state, index = end.parent_item;
    while (state >= 0) {
      const Item& item = fronts_[static_cast<size_t>(state)][static_cast<size_t>(index)];
      stages.push_back(item.last);
      state = item.parent_state;
      index = item.parent_item;
    }
    std::reverse(stages.begin(), stages.end());
    return stages;
  }

  ReplicaRate RateOf(const ReplicaSpec& replica) const {
    return CapacityOf(model_, replica, problem_.lengths, problem_.options);
  }

  void Consider(const std::vector<LayoutStage>& stages) {
    ReplicaSpec replica = MakeReplica(problem_, stages);
    if (problem_.least_latency) replica.micro_batches = 1;
    const ReplicaRate rate = RateOf(replica);
    ReplicaRate& same_depth = by_depth_[stages.size()];
    if (rate.requests_per_second > same_depth.requests_per_second) same_depth = rate;
    if (rate.requests_per_second <= best_.rate.requests_per_second) return;
    best_.stages = stages;
    best_.rate = rate;
  }

  const LayoutProblem& problem_;
  const ModelShape& model_;
  int pools_ = 0;
  int devices_ = 0;
  int used_states_ = 1;
  std::vector<int> radix_;
  bool stopped_ = false;
  Layout best_;
  std::vector<ReplicaRate> by_depth_;  // of the best layout with that many stages

  // Rows of the (b, K) at hand.
  double rows_ = 0;
  double return_bytes_ = 0;
  double worst_peak_ = kInfinity;
  double slack_ = kGridSlack;
  std::vector<double> reach_;  // by used devices, see BoundReach
  int only_stages_ = 0;        // 0: any number
  int micro_batches_ = 0;      // 0: one per stage
  std::vector<std::vector<WidthTable>> widths_;
  std::vector<std::vector<double>> hops_;
  std::vector<std::vector<Item>> fronts_;
};

}  // namespace

StageSpec MakeStage(const LayoutProblem& problem, const LayoutStage& stage, int first_layer) {
  StageSpec spec;
  ForEachPart(stage, [&](const LayoutPart& part) {
    spec.ranks.insert(spec.ranks.end(), static_cast<size_t>(part.width),
                      problem.pools[static_cast<size_t>(part.pool)].spec);
  });
  if (stage.mix == nullptr) {
    spec.communicator =
        Inside(*problem.graph, problem.pools[static_cast<size_t>(stage.pool)], stage.width);
  } else {
    spec.shares = SharesBy(*problem.model, stage.mix->fractions);
    spec.communicator = JoinedParts(problem, stage);
  }
  spec.first_layer = first_layer;
  spec.layers = stage.layers;
  spec.holds_embedding = first_layer == 0;
  spec.holds_head = first_layer + stage.layers == problem.model->layers;
  return spec;
}

std::vector<int> DevicesByPool(const std::vector<LayoutStage>& stages, size_t pools) {
  std::vector<int> devices(pools, 0);
  for (const LayoutStage& stage : stages) {
    ForEachPart(stage, [&](const LayoutPart& part) {
      devices[static_cast<size_t>(part.pool)] += part.width;
    });
  }
  return devices;
}

ReplicaSpec MakeReplica(const LayoutProblem& problem, const std::vector<LayoutStage>& stages) {
  ReplicaSpec replica;
  replica.role = problem.role;
  replica.stages.reserve(stages.size());
  replica.hops.reserve(stages.size());
  int layer = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    replica.stages.push_back(MakeStage(problem, stages[i], layer));
    layer += stages[i].layers;
    if (stages.size() == 1) continue;
    const LayoutStage& next = stages[(i + 1) % stages.size()];
    replica.hops.push_back(
        problem.graph->Between(problem.pools[static_cast<size_t>(stages[i].pool)].machine,
                               problem.pools[static_cast<size_t>(next.pool)].machine));
  }
  return replica;
}

Layout BestLayout(const LayoutProblem& problem) { return LayoutSearch(problem).Run(); }

std::string KeyOf(const LayoutProblem& layout) {
  std::string key = std::to_string(static_cast<int>(layout.role));
  for (const LayoutPool& pool : layout.pools) {
    absl::StrAppendFormat(&key, "|%p,%d", static_cast<const void*>(pool.spec), pool.count);
    for (const LayoutPool& other : layout.pools) {
      const LinkSpec& link = layout.graph->Between(pool.machine, other.machine);
      absl::StrAppendFormat(&key, ",%g,%g,%g,%g", link.bytes_per_second, link.latency_seconds,
                            link.incast_threshold, link.incast_seconds_per_byte);
    }
  }
  return key;
}

}  // namespace tessera::scheduler

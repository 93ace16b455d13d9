#include "scheduler/search/layout/mixed_pipelines.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "scheduler/search/layout/mixed_stages.h"
#include "scheduler/search/layout/set_seconds.h"

namespace tessera::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kTogetherUpTo = 16;  // devices
// Numbers of devices used, of all pools together and like machines in order: where all machines
// take part, and where fewer do not hold the model; and with like machines in any order.
constexpr double kMaxStates = 1100;
constexpr double kMaxNeededStates = 4096;
constexpr double kMaxUnordered = 65536;
constexpr double kMaxExtensions = 4e6;      // of the dynamic program
constexpr double kRoomAbove = 1.1;          // of weights and KV: what else devices hold
constexpr double kEvenness[] = {0.005, 1};  // parts of the squares of stages' seconds
constexpr int kSequences[] = {8, 1};        // of full length, for which there is to be room

using Parts = std::vector<LayoutPart>;  // by pool of the graph

// Devices that may be one stage.
struct DeviceSet {
  Parts parts;
  bool mixed = false;
};

int Devices(const Parts& parts) {
  int devices = 0;
  for (const LayoutPart& part : parts) devices += part.width;
  return devices;
}

// The devices that take part, and the sets of them that may be a stage.
class StageSets {
 public:
  explicit StageSets(const PlacementProblem& problem)
      : problem_(problem),
        pools_(problem.graph->pools()),
        by_machine_(problem.graph->machines().size()),
        max_width_(std::min(kMaxMixedWidth, MaxWidth(*problem.model))) {
    for (size_t p = 0; p < pools_.size(); ++p)
      by_machine_[static_cast<size_t>(pools_[p].machine)].push_back(static_cast<int>(p));
    TakeMachines();
    for (const int machine : machines_) AddInside(by_machine_[static_cast<size_t>(machine)]);
    if (machines_.size() > 2 && problem.graph->devices() <= kTogetherUpTo) AddJoined();
  }

  bool HasMixed() const {
    return std::any_of(sets_.begin(), sets_.end(), [](const DeviceSet& set) { return set.mixed; });
  }
  const std::vector<DeviceSet>& sets() const { return sets_; }
  const std::vector<int>& machines() const { return machines_; }
  const std::vector<int>& PoolsOf(int machine) const {
    return by_machine_[static_cast<size_t>(machine)];
  }
  // By index into machines(): the last before it that is just like it, -1: none.
  std::vector<int> LikeBefore() const {
    std::vector<int> before(machines_.size(), -1);
    for (size_t m = 0; m < machines_.size(); ++m) {
      for (size_t other = 0; other < m; ++other) {
        if (Exchangeable(machines_[m], machines_[other])) before[m] = static_cast<int>(other);
      }
    }
    return before;
  }

 private:
  int CountOf(int pool) const { return pools_[static_cast<size_t>(pool)].count; }

  // The fastest that hold the model, and more of them where all are few.
  void TakeMachines() {
    std::vector<double> rate(by_machine_.size(), 0), room(by_machine_.size(), 0);
    std::vector<int> order, devices(by_machine_.size(), 0), states(by_machine_.size(), 1);
    const MemoryOptions& memory = problem_.options.memory;
    for (const DevicePool& pool : pools_) {
      const auto m = static_cast<size_t>(pool.machine);
      rate[m] += pool.count * WeightsReadRate(*problem_.model, *pool.spec);
      room[m] += pool.count *
                 (pool.spec->memory_bytes * memory.utilisation - memory.runtime_reserve_bytes);
      devices[m] += pool.count;
      states[m] *= pool.count + 1;
    }
    for (size_t m = 0; m < by_machine_.size(); ++m) {
      if (devices[m] > 0) order.push_back(static_cast<int>(m));
    }
    const auto at = [](const auto& of, int m) { return of[static_cast<size_t>(m)]; };
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return at(rate, a) > at(rate, b); });
    const double longest =
        LeastKvTokens(Role::kBoth, MomentsOf(problem_.samples), problem_.options);
    double bytes = TotalWeightBytes(*problem_.model) + SequenceBytes(*problem_.model, longest);
    bytes *= kRoomAbove;
    double all_states = 1, in_any_order = 1;
    int taken = 0;
    for (const int m : order) {
      const auto like = std::count_if(machines_.begin(), machines_.end(),
                                      [&](int other) { return Exchangeable(m, other); });
      const double times = InOrder(at(states, m), like + 1) / InOrder(at(states, m), like);
      const bool few = taken + at(devices, m) <= kTogetherUpTo &&
                       all_states * times <= kMaxStates &&
                       in_any_order * at(states, m) <= kMaxUnordered;
      if (bytes <= 0 && !few) continue;
      machines_.push_back(m);
      bytes -= at(room, m);
      taken += at(devices, m);
      all_states *= times;
      in_any_order *= at(states, m);
    }
    if (all_states > kMaxNeededStates || in_any_order > kMaxUnordered) machines_.clear();
  }

  // States of like machines, none of which has devices in use before the one before it.
  static double InOrder(double states, int64_t machines) {
    double all = 1, with_each = 1;
    for (int64_t m = 0; m < machines; ++m) {
      with_each *= states - 1;
      all += with_each;
    }
    return all;
  }

  // Whether a pipeline is the same when the two change places.
  bool Exchangeable(int a, int b) const {
    const MachineNode& x = problem_.graph->machines()[static_cast<size_t>(a)];
    const MachineNode& y = problem_.graph->machines()[static_cast<size_t>(b)];
    return x.place == y.place && x.inside == y.inside && Alike(a, b);
  }

  // Devices of one pool; of two pools as many of each, or all; all of the machine.
  void AddInside(const std::vector<int>& of) {
    Parts whole;
    for (size_t i = 0; i < of.size(); ++i) {
      const int count = CountOf(of[i]);
      for (int width = 1; width <= std::min(count, MaxWidth(*problem_.model)); ++width)
        Add({{of[i], width}});
      for (size_t j = i + 1; j < of.size(); ++j) {
        const int other = CountOf(of[j]);
        for (int each = 1; each <= std::min(count, other); each *= 2)
          Add({{of[i], each}, {of[j], each}});
        if (count != other || (count & (count - 1)) != 0) Add({{of[i], count}, {of[j], other}});
      }
      whole.push_back({of[i], count});
    }
    if (whole.size() > 2) Add(std::move(whole));
  }

  // Two machines of like devices, where their links carry a stage.
  void AddJoined() {
    for (size_t i = 0; i < machines_.size(); ++i) {
      for (size_t j = i + 1; j < machines_.size(); ++j) {
        const int a = machines_[i], b = machines_[j];
        if (!Joined(a, b) || !Joined(b, a) || !Alike(a, b)) continue;
        Parts both;
        for (const int machine : {a, b}) {
          for (const int p : by_machine_[static_cast<size_t>(machine)])
            both.push_back({p, CountOf(p)});
        }
        Add(std::move(both));
      }
    }
  }

  bool Joined(int from, int to) const {
    return problem_.graph->Between(from, to).bytes_per_second >= kMinMixedBytesPerSecond;
  }

  bool Alike(int a, int b) const {
    const std::vector<int>&of = by_machine_[static_cast<size_t>(a)],
          &other = by_machine_[static_cast<size_t>(b)];
    return std::equal(of.begin(), of.end(), other.begin(), other.end(), [&](int p, int q) {
      const DevicePool &x = pools_[static_cast<size_t>(p)], &y = pools_[static_cast<size_t>(q)];
      return x.spec == y.spec && x.count == y.count;
    });
  }

  void Add(Parts parts) {
    const bool mixed = parts.size() > 1;
    if (mixed && Devices(parts) > max_width_) return;
    sets_.push_back({std::move(parts), mixed});
  }

  const PlacementProblem& problem_;
  const std::vector<DevicePool>& pools_;
  std::vector<std::vector<int>> by_machine_;
  const int max_width_;
  std::vector<int> machines_;
  std::vector<DeviceSet> sets_;
};

// The dynamic program.
class PipelineSearch {
 public:
  // With room for so many sequences of full length.
  PipelineSearch(const PlacementProblem& problem, const StageSets& sets, int sequences)
      : problem_(problem),
        layout_(OnWholeGraph(problem, Role::kBoth)),
        work_(MomentsOf(problem.samples), problem.options.memory),
        layers_(problem.model->layers),
        machines_(sets.machines()),
        like_before_(sets.LikeBefore()) {
    layout_.lengths = MomentsOf(problem.samples);
    layout_.options = problem.options;
    layout_.options.longest_request_tokens =
        sequences * LeastKvTokens(Role::kBoth, layout_.lengths, problem.options);
    radix_of_.resize(problem.graph->pools().size(), 0);
    int states = 1;
    for (const int machine : machines_) {
      const int radix = states;
      for (const int pool : sets.PoolsOf(machine)) {
        radix_of_[static_cast<size_t>(pool)] = states;
        states *= CountOf(pool) + 1;
      }
      digits_.push_back({radix, states});
    }
    NumberStates(states);
    for (const DeviceSet& set : sets.sets()) AddSet(set);
    AddRoom();
    while (Extensions() > kMaxExtensions) ++step_;
    NumberItems();
    for (Stage& stage : stages_) Time(&stage);
    for (const Stage& stage : stages_)
      fastest_layer_ = std::min(fastest_layer_, stage.seconds->fastest_layer());
  }

  // No stages: nothing fits.
  PlacedReplica Soonest(double evenness) {
    square_ = evenness / (layers_ * fastest_layer_);
    best_ = {};
    best_stages_.clear();
    for (size_t first = 0; first < machines_.size(); ++first) RunFrom(static_cast<int>(first));
    PlacedReplica replica;
    replica.stages = best_stages_;
    return replica;
  }

 private:
  // A set as a stage.
  struct Stage {
    Parts parts;
    bool mixed = false;
    int machine = 0;         // of its first rank, an index into machines_
    int radix = 0;           // of its devices, in states
    double room = 0;         // bytes, see AddRoom
    std::vector<int> after;  // machines that have devices in use before it: like ones go in order
    std::shared_ptr<const SetSeconds> seconds;
    std::vector<double> hops;  // seconds of the answer, by machine of the stage before
  };
  // The radix of a machine's devices, and that of the next machine's.
  struct Digits {
    int begin = 1, end = 1;
  };
  // The best way to a state: layers done, devices used, machine of the last stage.
  struct Item {
    double cost = kInfinity;
    int before = -1;  // state; -1: none
    int stage = 0, cut = 0, layers = 0;
  };

  int CountOf(int pool) const { return problem_.graph->pools()[static_cast<size_t>(pool)].count; }

  void AddSet(const DeviceSet& set) {
    Stage stage;
    stage.parts = set.parts;
    stage.mixed = set.mixed;
    const int machine = problem_.graph->pools()[static_cast<size_t>(set.parts[0].pool)].machine;
    while (machines_[static_cast<size_t>(stage.machine)] != machine) ++stage.machine;
    for (const LayoutPart& part : set.parts)
      stage.radix += part.width * radix_of_[static_cast<size_t>(part.pool)];
    for (const LayoutPart& part : set.parts) {
      const auto same = [&](size_t m) {
        const std::vector<DevicePool>& pools = problem_.graph->pools();
        return std::any_of(set.parts.begin(), set.parts.end(), [&](const LayoutPart& other) {
          return pools[static_cast<size_t>(other.pool)].machine == machines_[m];
        });
      };
      const int of = problem_.graph->pools()[static_cast<size_t>(part.pool)].machine;
      const auto at = std::find(machines_.begin(), machines_.end(), of) - machines_.begin();
      const int before = like_before_[static_cast<size_t>(at)];
      if (before >= 0 && !same(static_cast<size_t>(before))) stage.after.push_back(before);
    }
    stages_.push_back(std::move(stage));
  }

  // Those in which like machines are used in order.
  void NumberStates(int states) {
    index_of_.assign(static_cast<size_t>(states), -1);
    for (int used = 0; used < states; ++used) {
      bool in_order = true;
      for (size_t m = 0; m < machines_.size(); ++m) {
        const int before = like_before_[m];
        if (before >= 0 && InUse(static_cast<int>(m), used) && !InUse(before, used))
          in_order = false;
      }
      if (!in_order) continue;
      index_of_[static_cast<size_t>(used)] = static_cast<int>(used_.size());
      used_.push_back(used);
    }
  }

  // Whether devices of the machine are in use.
  bool InUse(int machine, int used) const {
    const Digits& digits = digits_[static_cast<size_t>(machine)];
    return used % digits.end >= digits.begin;
  }

  // Weights, and at most what devices have for them: by which most numbers of layers on most
  // devices in use need no look where machines are all needed.
  void AddRoom() {
    const ModelShape& model = *problem_.model;
    const RankShare whole = FullestShare(model, 1);
    weights_until_ = {0};
    for (int layer = 0; layer < layers_; ++layer)
      weights_until_.push_back(weights_until_.back() + LayerWeightBytes(model, whole, layer));
    const MemoryOptions& memory = problem_.options.memory;
    const auto room_of = [&](size_t pool) {
      const double bytes = problem_.graph->pools()[pool].spec->memory_bytes;
      return std::max(0.0, bytes * memory.utilisation - memory.runtime_reserve_bytes);
    };
    for (Stage& stage : stages_) {
      for (const LayoutPart& part : stage.parts)
        stage.room += part.width * room_of(static_cast<size_t>(part.pool));
    }
    for (const int used : used_) {
      double& room = room_used_.emplace_back(0);
      for (size_t p = 0; p < radix_of_.size(); ++p) {
        if (radix_of_[p] > 0)
          room += used / radix_of_[p] % (CountOf(static_cast<int>(p)) + 1) * room_of(p);
      }
    }
  }

  // How many first layers there may be with so much room.
  int MostLayers(double room) const {
    const auto end = std::upper_bound(weights_until_.begin(), weights_until_.end(), room);
    return static_cast<int>(end - weights_until_.begin()) - 1;
  }

  // Steps of layers done, from the first number to the second, that leave no device in use without
  // room and none of the rest; none: the first is above the second. `index`: of the devices in use.
  std::pair<int, int> StepsDone(size_t index) const {
    const double left = room_used_.back() - room_used_[index];
    const auto least = std::lower_bound(weights_until_.begin(), weights_until_.end(),
                                        weights_until_.back() - left);
    const auto from = static_cast<int>(least - weights_until_.begin());
    return {std::max(1, (from + step_ - 1) / step_),
            std::min((layers_ - 1) / step_, MostLayers(room_used_[index]) / step_)};
  }

  // How often the program looks at a stage behind others, about.
  double Extensions() const {
    const size_t starts = static_cast<size_t>((layers_ + step_ - 1) / step_);
    std::vector<std::vector<double>> before(stages_.size(), {0});  // of the first steps, summed up
    for (size_t s = 0; s < stages_.size(); ++s) {
      for (int first = 0; first < layers_; first += step_) {
        const int most =
            MostLayers(weights_until_[static_cast<size_t>(first)] + stages_[s].room) - first;
        before[s].push_back(before[s].back() + std::min(most, layers_ - first - 1) / step_ + 1);
      }
    }
    double looks = 0;
    for (size_t index = 0; index < used_.size() && starts > 1; ++index) {
      double firsts = 0, lasts = 0;  // machines
      for (size_t m = 0; m < machines_.size(); ++m) {
        if (!InUse(static_cast<int>(m), used_[index])) continue;
        ++lasts;
        if (like_before_[m] < 0) ++firsts;
      }
      const auto [from, to] = StepsDone(index);
      if (from > to) continue;
      for (size_t s = 0; s < stages_.size(); ++s) {
        if (Free(stages_[s], used_[index]))
          looks += firsts * lasts *
                   (before[s][static_cast<size_t>(to) + 1] - before[s][static_cast<size_t>(from)]);
      }
    }
    return looks;
  }

  void NumberItems() {
    for (size_t index = 0; index < used_.size(); ++index) {
      done_.push_back(StepsDone(index));
      const auto [from, to] = done_.back();
      const auto machines = static_cast<int>(machines_.size());
      first_item_.push_back(number_of_items_ - from * machines);
      number_of_items_ += std::max(0, to - from + 1) * machines;
    }
  }

  // How long the stage takes, and the hops into it. Stages are timed in their order.
  void Time(Stage* stage) {
    StageSpec spec = MakeStage(layout_, StageOf(*stage, {}, 1), 0);
    for (size_t i = 0; i < specs_.size() && stage->seconds == nullptr; ++i) {
      const bool like = stages_[i].mixed == stage->mixed && specs_[i].ranks == spec.ranks &&
                        specs_[i].communicator == spec.communicator;
      if (like) stage->seconds = stages_[i].seconds;
    }
    if (stage->seconds == nullptr)
      stage->seconds =
          std::make_shared<const SetSeconds>(layout_, work_, spec, stage->mixed, step_);
    const int machine = machines_[static_cast<size_t>(stage->machine)];
    for (const int before : machines_) {
      stage->hops.push_back(work_.HopSeconds(
          *problem_.model, problem_.graph->Between(before, machine), spec.communicator));
    }
    specs_.push_back(std::move(spec));
  }

  LayoutStage StageOf(const Stage& stage, std::vector<double> fractions, int layers) const {
    LayoutStage made = {stage.parts[0].pool, stage.parts[0].width, layers};
    if (!stage.mixed) return made;
    if (fractions.empty()) fractions.assign(static_cast<size_t>(Devices(stage.parts)), 1);
    made.mix = std::make_shared<const StageMix>(
        StageMix{Parts(stage.parts.begin() + 1, stage.parts.end()), std::move(fractions)});
    return made;
  }

  // -1: there is no such state that leads to an end.
  int StateOf(int layer, int used, int machine) const {
    const auto index = static_cast<size_t>(index_of_[static_cast<size_t>(used)]);
    const auto [from, to] = done_[index];
    const int steps = layer / step_;
    if (steps < from || steps > to) return -1;
    return first_item_[index] + steps * static_cast<int>(machines_.size()) + machine;
  }

  bool Free(const Stage& stage, int used) const {
    const bool in_order = std::all_of(stage.after.begin(), stage.after.end(),
                                      [&](int machine) { return InUse(machine, used); });
    if (!in_order) return false;
    return std::all_of(stage.parts.begin(), stage.parts.end(), [&](const LayoutPart& part) {
      const int in_use =
          used / radix_of_[static_cast<size_t>(part.pool)] % (CountOf(part.pool) + 1);
      return in_use + part.width <= CountOf(part.pool);
    });
  }

  // All pipelines whose first stage begins on that machine.
  void RunFrom(int first) {
    if (like_before_[static_cast<size_t>(first)] >= 0) return;
    first_ = first;
    items_.assign(static_cast<size_t>(number_of_items_), {});
    for (size_t s = 0; s < stages_.size(); ++s) {
      if (stages_[s].machine == first && Free(stages_[s], 0)) Extend(-1, 0, 0, s);
    }
    for (int layer = step_; layer < layers_; layer += step_) {
      if (problem_.watch.Stopped()) return;
      for (const int used : used_) {
        for (size_t machine = 0; machine < machines_.size(); ++machine) {
          const int state = StateOf(layer, used, static_cast<int>(machine));
          if (state < 0) break;
          if (items_[static_cast<size_t>(state)].cost == kInfinity) continue;
          for (size_t s = 0; s < stages_.size(); ++s) {
            if (Free(stages_[s], used)) Extend(state, layer, used, s);
          }
        }
      }
    }
  }

  // Every stage of that set behind the state.
  void Extend(int state, int layer, int used, size_t s) {
    const Stage& stage = stages_[s];
    double before = 0;
    if (state >= 0) {
      const auto machines = static_cast<int>(machines_.size());
      before = items_[static_cast<size_t>(state)].cost +
               stage.hops[static_cast<size_t>(state % machines)];
    }
    const int rest = layers_ - layer;
    for (int layers = std::min(step_, rest); layers <= rest;
         layers = layers + step_ > rest && layers < rest ? rest : layers + step_) {
      const bool last = layers == rest;
      if (last && state < 0) return;  // of one stage
      const SetSeconds::Timed& timed = stage.seconds->Of(layer, layers);
      if (timed.seconds == kInfinity) return;  // nor is there room for more
      double cost = before + timed.seconds + square_ * timed.seconds * timed.seconds;
      if (last) {
        const auto at = [&](int machine) { return machines_[static_cast<size_t>(machine)]; };
        cost += work_.WayBackSeconds(problem_.graph->Between(at(stage.machine), at(first_)));
      }
      if (!(cost + (rest - layers) * fastest_layer_ < best_.cost)) continue;
      const Item item = {cost, state, static_cast<int>(s), timed.cut, layers};
      if (last) {
        Finish(item);
      } else {
        const int to = StateOf(layer + layers, used + stage.radix, stage.machine);
        if (to >= 0 && cost < items_[static_cast<size_t>(to)].cost)
          items_[static_cast<size_t>(to)] = item;
      }
    }
  }

  void Finish(const Item& last) {
    best_ = last;
    best_stages_.clear();
    for (Item item = last;; item = items_[static_cast<size_t>(item.before)]) {
      const Stage& stage = stages_[static_cast<size_t>(item.stage)];
      best_stages_.push_back(StageOf(stage, stage.seconds->fractions(item.cut), item.layers));
      if (item.before < 0) break;
    }
    std::reverse(best_stages_.begin(), best_stages_.end());
  }

  const PlacementProblem& problem_;
  LayoutProblem layout_;
  const AnswerWork work_;
  const int layers_;
  const std::vector<int>& machines_;  // of the graph
  const std::vector<int> like_before_;
  std::vector<int> radix_of_;          // by pool of the graph
  std::vector<Digits> digits_;         // by machine
  std::vector<int> used_;              // numbers of devices used, one digit each
  std::vector<int> index_of_;          // of each in used_, -1: like machines are not used in order
  int step_ = 1;                       // stages have multiples of it, and the last what is left
  std::vector<double> weights_until_;  // bytes of layers [0, l)
  std::vector<double> room_used_;      // by index into used_: bytes of the devices in use
  // By the same: steps of layers done, from and to, that may lead to an end; and where their items
  // would begin at no layer.
  std::vector<std::pair<int, int>> done_;
  std::vector<int> first_item_;
  int number_of_items_ = 0;
  std::vector<Stage> stages_;
  std::vector<StageSpec> specs_;  // of the same sets
  double fastest_layer_ = kInfinity;
  double square_ = 0;
  int first_ = 0;  // machine of the first stage, an index into machines_
  std::vector<Item> items_;
  Item best_;  // the last stage of the best pipeline
  std::vector<LayoutStage> best_stages_;
};

}  // namespace

std::vector<PlacedReplica> MixedPipelines(const PlacementProblem& problem) {
  if (problem.model->one_stage) return {};
  const StageSets sets(problem);
  if (!sets.HasMixed()) return {};
  std::vector<PlacedReplica> replicas;
  for (const int sequences : kSequences) {
    PipelineSearch search(problem, sets, sequences);
    for (const double evenness : kEvenness) {
      PlacedReplica replica = search.Soonest(evenness);
      if (!replica.stages.empty()) replicas.push_back(std::move(replica));
    }
    if (!replicas.empty()) break;
  }
  return replicas;
}

}  // namespace tessera::scheduler

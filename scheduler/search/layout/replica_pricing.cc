#include "scheduler/search/layout/replica_pricing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace tessera::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kPerOctave = 64;     // grid of rows
constexpr int kNoRows = -1000000;  // on the grid: 0
constexpr double kRounding = 1 + 1e-6;
constexpr int kMultipliers = 10;     // tried for the sum of stages and hops
constexpr double kSettled = 1e-6;    // of a price
constexpr double kNearTarget = 0.7;  // worth a column where it is one that can be had
constexpr double kSmallBox = 1.2;

double GridRows(int i) { return i == kNoRows ? 0 : std::exp2(static_cast<double>(i) / kPerOctave); }

// Least grid point at or above.
int GridAbove(double rows) {
  return static_cast<int>(std::ceil(std::log2(rows) * kPerOctave - 1e-9));
}

// Highest grid point at or below.
int GridBelow(double rows) {
  return static_cast<int>(std::floor(std::log2(rows) * kPerOctave + 1e-9));
}

double SecondsOver(const LinkSpec& link, double bytes) {
  return link.bytes_per_second > 0 ? link.latency_seconds + bytes / link.bytes_per_second
                                   : kInfinity;
}

void Widen(LinkSpec* link, const LinkSpec& by) {
  if (by.bytes_per_second <= 0) return;
  const bool none = link->bytes_per_second <= 0;
  link->latency_seconds =
      none ? by.latency_seconds : std::min(link->latency_seconds, by.latency_seconds);
  link->bytes_per_second = std::max(link->bytes_per_second, by.bytes_per_second);
}

// Items that no other one replaces at any multiplier; the first of equals stays.
void KeepUndominated(std::vector<CoverItem>* items) {
  std::stable_sort(items->begin(), items->end(), [](const CoverItem& a, const CoverItem& b) {
    if (a.layers != b.layers) return a.layers > b.layers;
    if (a.price != b.price) return a.price < b.price;
    return std::tuple(a.fixed, a.layer) < std::tuple(b.fixed, b.layer);
  });
  size_t kept = 0;
  for (const CoverItem& item : *items) {
    const bool dominated = std::any_of(
        items->begin(), items->begin() + static_cast<long>(kept), [&](const CoverItem& other) {
          return other.price <= item.price && other.fixed <= item.fixed &&
                 other.layer <= item.layer;
        });
    if (!dominated) (*items)[kept++] = item;
  }
  items->resize(kept);
}

}  // namespace

ReplicaPricing::ReplicaPricing(const DeviceClasses& classes, StageShapes* shapes)
    : classes_(classes), shapes_(*shapes), cover_(shapes->model().layers) {
  for (const DeviceClass& of : classes.all()) {
    std::vector<int>& by_width = shape_of_.emplace_back();
    const int most = std::min(of.per_machine, MaxWidth(shapes->model()));
    for (int width = 1; width <= most; ++width)
      by_width.push_back(shapes->Intern(*of.spec, of.inside, width));
  }
}

PricingAnswer ReplicaPricing::Run(const PricingQuery& query) {
  query_ = &query;
  answer_ = {};
  heap_.clear();
  seen_.clear();
  seen_with_load_.clear();
  closed_ = 0;
  best_ = query.target;
  const LengthMoments& lengths = shapes_.lengths();
  prompts_only_ = query.role == Role::kPrefill || lengths.decode_steps <= 0;
  limit_tpot_ = prompts_only_ ? kInfinity : shapes_.options().max_tpot_seconds;
  if (prompts_only_ && (query.role == Role::kDecode || lengths.uncached_prompt_tokens <= 0))
    return answer_;
  output_ = prompts_only_ ? SteadyWork(query.role, lengths, 0, shapes_.options()).prefill_tokens /
                                lengths.uncached_prompt_tokens
                          : 1 / lengths.decode_steps;
  MakeTypes();
  if (types_.empty()) return answer_;
  PushRoots();
  while (!heap_.empty() && answer_.boxes < query.max_boxes) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Box box = heap_.back();
    heap_.pop_back();
    closed_ = std::max(closed_, std::min(box.bound, Interest()));
    if (box.bound <= Interest()) break;
    Split(box);
  }
  answer_.reached = best_;
  answer_.bound = std::max(best_, closed_);
  for (const Box& box : heap_) answer_.bound = std::max(answer_.bound, box.bound);
  return std::move(answer_);
}

// --- Stages that can be had ---

LinkSpec ReplicaPricing::BestFromApart(int device_class) const {
  LinkSpec best;
  for (int c = 0; c < classes_.size(); ++c) {
    if (query_->group >= 0 && classes_[c].group != query_->group) continue;
    Widen(&best, classes_.Apart(c, device_class));
  }
  return best;
}

void ReplicaPricing::AddTypes(int device_class) {
  const DeviceClass& of = classes_[device_class];
  const int in_machine = classes_.MachineDevices(device_class);
  LinkSpec apart = BestFromApart(device_class);
  // As many devices as it takes need as many machines, be there one or more.
  if (query_->only_class >= 0 && apart.bytes_per_second <= 0) apart = of.inside;
  const std::vector<int>& shapes = shape_of_[static_cast<size_t>(device_class)];
  for (size_t i = 0; i < shapes.size(); ++i) {
    const int width = static_cast<int>(i) + 1;
    StageType type;
    type.shape = shapes[i];
    type.device_class = device_class;
    type.price = width * query_->prices[static_cast<size_t>(device_class)];
    type.in = type.apart = apart;
    if (in_machine > width) Widen(&type.in, of.inside);
    const bool alone = in_machine == of.per_machine;  // no other class in the machine
    type.of_machine = alone ? 1.0 / (in_machine / width) : static_cast<double>(width) / in_machine;
    types_.push_back(type);
  }
}

void ReplicaPricing::MakeTypes() {
  types_.clear();
  hops_.clear();
  spread_.clear();
  on_machine_.clear();
  for (int c = 0; c < classes_.size(); ++c) {
    if (query_->group >= 0 && classes_[c].group != query_->group) continue;
    if (query_->only_class >= 0 && c != query_->only_class) continue;
    AddTypes(c);
  }
  std::map<std::tuple<int, double, double, double>, size_t> like;  // place in spread_
  for (size_t t = 0; t < types_.size(); ++t) {
    const StageType& type = types_[t];
    const auto [at, fresh] =
        like.emplace(std::tuple(type.shape, type.of_machine, type.apart.bytes_per_second,
                                type.apart.latency_seconds),
                     spread_.size());
    if (fresh) {
      spread_.push_back(static_cast<int>(t));
    } else if (type.price < types_[static_cast<size_t>(spread_[at->second])].price) {
      spread_[at->second] = static_cast<int>(t);
    }
    const size_t machine = static_cast<size_t>(classes_[type.device_class].shape);
    if (on_machine_.size() <= machine) on_machine_.resize(machine + 1);
    on_machine_[machine].push_back(static_cast<int>(t));
  }
  MakeCrossing();
}

void ReplicaPricing::MakeCrossing() {
  crossing_ = {};
  if (query_->group >= 0) return;
  for (int a = 0; a < classes_.size(); ++a) {
    for (int b = 0; b < classes_.size(); ++b) {
      if (classes_[a].group != classes_[b].group) Widen(&crossing_, classes_.Apart(a, b));
    }
  }
}

// --- Boxes ---

double ReplicaPricing::RowsLow(const Box& box) const { return GridRows(box.low); }

double ReplicaPricing::RowsHigh(const Box& box) const {
  if (prompts_only_) return 1;
  double most = GridRows(box.high);
  const ReplicaOptions& options = shapes_.options();
  const LengthMoments& lengths = shapes_.lengths();
  const double prompts =
      query_->role == Role::kBoth ? lengths.uncached_prompt_tokens / lengths.decode_steps : 0.0;
  most = std::min(most, static_cast<double>(options.memory.max_step_tokens) / (1 + prompts));
  return std::min(most, options.max_sequences / box.micro_batches);
}

double ReplicaPricing::KvTokens(const Box& box) const {
  const LengthMoments& lengths = shapes_.lengths();
  const double least = std::max(1.0, LeastKvTokens(query_->role, lengths, shapes_.options()));
  if (prompts_only_) return least;
  const double rows =
      RowsLow(box) * box.micro_batches * std::max(1.0, lengths.mean_decode_context());
  return std::max(least, rows / (1 - shapes_.options().kv_headroom));
}

const ReplicaPricing::Hops& ReplicaPricing::HopsAt(double rows) {
  const auto [at, fresh] = hops_.try_emplace(rows);
  Hops& hops = at->second;
  if (!fresh) return hops;
  const double bytes = shapes_.RowsAt(query_->role, prompts_only_ ? 0 : rows) * shapes_.row_bytes();
  for (const StageType& type : types_) {
    const double best = SecondsOver(type.in, bytes);
    hops.of_type.push_back({SecondsOver(type.in, kTokenIdBytes), best,
                            std::max(0.0, SecondsOver(type.apart, bytes) - best)});
  }
  for (const int t : spread_) {
    const double apart = SecondsOver(types_[static_cast<size_t>(t)].apart, bytes);
    if (apart < kInfinity) hops.most_apart = std::max(hops.most_apart, apart);
  }
  hops.crossing = SecondsOver(crossing_, bytes);
  return hops;
}

// Some may be replaced by others: see KeepUndominated.
std::vector<CoverItem> ReplicaPricing::Items(const Box& box, StagePlace place) {
  const double rows = RowsHigh(box), kv = KvTokens(box), period = box.slow * rows;
  const std::vector<ShapeSeconds>& seconds =
      shapes_.SecondsAt(query_->role, prompts_only_ ? 0 : rows);
  const Hops& hops = HopsAt(rows);
  const bool head = place == StagePlace::kLast || place == StagePlace::kOnly;
  const double layers = shapes_.model().layers;
  const std::vector<int>& types = TypesOf(box);
  std::vector<CoverItem> items;
  items.reserve(types.size());
  for (const int t : types) {
    const StageType& type = types_[static_cast<size_t>(t)];
    const ShapeSeconds& s = seconds[static_cast<size_t>(type.shape)];
    const Hop& into = hops.of_type[static_cast<size_t>(t)];
    double hop = 0, least = 0;  // activations in; into the first stage only token ids come
    if (place == StagePlace::kFirst) {
      hop = least = into.token_ids;
      // Nobody sends activations to its machine: what other stages there are charged comes back.
      if (box.machine < 0) hop -= (1 - type.of_machine) * into.apart_more;
    }
    if (place == StagePlace::kInner || place == StagePlace::kLast) {
      hop = least = into.activations + s.spread;
      if (box.machine < 0) hop += type.of_machine * into.apart_more;
    }
    if (least > period || !std::isfinite(hop)) continue;
    const double fixed = s.fixed + (head ? s.head : 0);
    const double most =
        std::min({layers, (period - fixed) / s.layer, shapes_[type.shape].MemoryLayers(place, kv)});
    if (most * kRounding < 1) continue;
    items.push_back({t, static_cast<int>(most * kRounding), type.price, fixed + hop, s.layer});
  }
  return items;
}

// What stages and hops may last in all within the slowest period of the box.
double ReplicaPricing::SumLimit(const Box& box) {
  const double rows = RowsHigh(box);
  double limit = box.micro_batches * box.slow * rows;
  if (box.machine >= 0) return limit;
  const Hops& hops = HopsAt(rows);
  // Nobody sends activations to the first machine; a box of any number of stages does not say which
  // that is.
  if (box.stages == 0) limit += hops.most_apart;
  // The way to another group and back again costs more than the best hop into a machine.
  if (query_->group < 0) limit -= std::max(0.0, hops.crossing - hops.most_apart);
  return limit;
}

CoverProgram::Solution ReplicaPricing::OneStage(const Box& box) {
  CoverProgram::Solution solution;
  for (const CoverItem& item : Items(box, StagePlace::kOnly)) {
    if (item.layers < shapes_.model().layers || item.price >= solution.price) continue;
    solution.price = item.price;
    solution.stages = {{item, item.layers}};
  }
  return solution;
}

// As many stages of the one that breaks the limit as keep it: at the last multiplier both cost the
// same, and what is between them costs less than the one that keeps it.
std::vector<CoverProgram::Stage> ReplicaPricing::Mixed(const CoverProgram::Solution& breaks,
                                                       const CoverProgram::Solution& keeps,
                                                       double limit) const {
  if (breaks.stages.size() != keeps.stages.size()) return keeps.stages;
  std::vector<CoverProgram::Stage> stages = keeps.stages, best = stages;
  for (size_t i = 0; i < stages.size(); ++i) {
    stages[i] = breaks.stages[i];
    double seconds = 0;
    int layers = 0;
    for (const CoverProgram::Stage& stage : stages) {
      seconds += stage.item.fixed + stage.item.layer * stage.layers;
      layers += stage.item.layers;
    }
    if (layers >= shapes_.model().layers && seconds <= limit) best = stages;
  }
  return best;
}

CoverProgram::Solution ReplicaPricing::Cover(const Box& box) {
  if (box.stages == 1) return OneStage(box);
  const bool any = box.stages == 0;
  std::vector<CoverItem> first = any ? std::vector<CoverItem>() : Items(box, StagePlace::kFirst);
  std::vector<CoverItem> inner = Items(box, StagePlace::kInner);
  std::vector<CoverItem> last = any ? std::vector<CoverItem>() : Items(box, StagePlace::kLast);
  const double interest = Interest();
  // The stages of a dearer solution are not asked for.
  const double worth = output_ * kRounding * kRounding / (box.fast * interest);
  const auto solve = [&](double multiplier, double limit) {
    return any ? cover_.CheapestOfAny(inner, multiplier, limit)
               : cover_.Cheapest(first, inner, last, box.stages, multiplier, limit, worth);
  };
  std::vector<CoverItem>* lists[] = {&first, &inner, &last};
  double per_layer = kInfinity;
  for (const std::vector<CoverItem>* list : lists) {
    for (const CoverItem& item : *list) per_layer = std::min(per_layer, item.price / item.layers);
  }
  CoverProgram::Solution fluid;
  fluid.price = per_layer * shapes_.model().layers;
  if (BoundOf(box, fluid.price) <= interest) return fluid;
  CoverProgram::Solution best = solve(0, 0);
  if (best.price == kInfinity || BoundOf(box, best.price) <= interest || box.slow == kInfinity)
    return best;
  // What the sum adds is little: it is worth its time where the box is small.
  if (!any && box.slow > kSmallBox * box.fast) return best;
  const double limit = SumLimit(box);
  if (limit <= 0) return {};
  // Between a solution that breaks the limit and one that keeps it the next multiplier is the one
  // at which both cost the same, until no third one is cheaper there.
  CoverProgram::Solution breaks = best, keeps;
  if (breaks.seconds <= limit) return best;
  for (std::vector<CoverItem>* list : lists) KeepUndominated(list);
  double price = best.price, multiplier = best.price / limit;
  for (int i = 0; i < kMultipliers; ++i) {
    CoverProgram::Solution priced = solve(multiplier, limit);
    const double known = breaks.price + multiplier * (breaks.seconds - limit);
    const bool settled = keeps.price < kInfinity && priced.price >= known * (1 - kSettled);
    price = std::max(price, priced.price);
    if (settled || BoundOf(box, price) <= interest) break;
    priced.price -= multiplier * (priced.seconds - limit);  // of its stages alone
    const bool in_time = priced.seconds <= limit;
    (in_time ? keeps : breaks) = std::move(priced);
    multiplier = keeps.price == kInfinity
                     ? 4 * multiplier
                     : (keeps.price - breaks.price) / (breaks.seconds - keeps.seconds);
    if (!(multiplier > 0)) break;
  }
  if (keeps.price < kInfinity) best.stages = Mixed(breaks, keeps, limit);
  best.price = price;
  return best;
}

// Boxes with bounds up to here are not looked into.
double ReplicaPricing::Interest() const {
  return std::max(best_ * (1 + query_->tolerance), query_->known_bound);
}

double ReplicaPricing::BoundOf(const Box& box, double price) const {
  if (price == kInfinity) return 0;
  return output_ / (box.fast * price) * kRounding;
}

void ReplicaPricing::PushRoots() {
  if (query_->group >= 0) PushRoot(-1, 1, 1);
  int devices = 0;
  for (size_t machine = 0; machine < on_machine_.size(); ++machine) {
    if (on_machine_[machine].empty()) continue;
    const int of = types_[static_cast<size_t>(on_machine_[machine].front())].device_class;
    const int in_machine = classes_.MachineDevices(of);
    const DeviceClass& classed = classes_[of];
    devices += in_machine * static_cast<int>(classed.pools.size());
    if (query_->group >= 0) PushRootsOn(static_cast<int>(machine), in_machine);
  }
  PushRootsOn(-1, query_->only_class >= 0 ? shapes_.model().layers : devices);
}

// Pushes roots of two stages or more.
void ReplicaPricing::PushRootsOn(int machine, int devices) {
  const int most = std::min(devices, shapes_.model().layers);
  for (int stages = 2; stages <= most; ++stages) PushRoot(machine, stages, stages);
  if (prompts_only_ || !query_->certify) return;
  for (int micro = 1; micro < most; ++micro) PushRoot(machine, 0, micro);
}

void ReplicaPricing::PushRoot(int machine, int stages, int micro_batches) {
  Box box;
  box.machine = machine;
  box.stages = stages;
  box.micro_batches = micro_batches;
  box.slow = kInfinity;
  if (!prompts_only_) {
    const bool below_one = micro_batches == 1 || std::isfinite(limit_tpot_);
    box.low = below_one ? kNoRows : GridBelow(1);
    box.high = 1 << 20;
    if (stages == 0) box.high = GridAbove(micro_batches == 1 ? 2.0 : 1.0 + 1.0 / micro_batches);
    box.high = GridAbove(RowsHigh(box));
    if (box.low != kNoRows && box.high < box.low) return;
    if (box.high == box.low) ++box.high;
  }
  const double rows = RowsHigh(box);
  double layer = kInfinity;
  const std::vector<ShapeSeconds>& seconds =
      shapes_.SecondsAt(query_->role, prompts_only_ ? 0 : rows);
  for (const int t : TypesOf(box)) {
    const int shape = types_[static_cast<size_t>(t)].shape;
    layer = std::min(layer, seconds[static_cast<size_t>(shape)].layer);
  }
  box.fast = shapes_.model().layers * layer / (micro_batches * rows);
  // The slowest period that is of interest: what even the cheapest devices do not make up for.
  const CoverProgram::Solution cheapest = Cover(box);
  if (cheapest.price == kInfinity) return;
  if (BoundOf(box, cheapest.price) <= Interest()) {
    closed_ = std::max(closed_, BoundOf(box, cheapest.price));
    return;
  }
  Consider(box, cheapest);
  if (best_ > 0) box.slow = output_ / (best_ * cheapest.price) * kRounding;
  if (best_ <= 0) box.slow = box.fast * 1e9;
  if (RowsLow(box) > 0) {
    box.slow = std::min(box.slow, limit_tpot_ / (micro_batches * RowsLow(box)) * kRounding);
  }
  if (box.slow >= box.fast) Push(box);
}

void ReplicaPricing::Push(Box box) {
  ++answer_.boxes;
  const CoverProgram::Solution solution = Cover(box);
  if (solution.price == kInfinity) return;
  box.bound = BoundOf(box, solution.price);
  if (box.bound > Interest()) Consider(box, solution);
  if (box.bound <= Interest()) {
    closed_ = std::max(closed_, box.bound);
    return;
  }
  heap_.push_back(box);
  std::push_heap(heap_.begin(), heap_.end());
}

bool ReplicaPricing::CanSplitRows(const Box& box) const {
  return !prompts_only_ && (box.low == kNoRows || box.high - box.low > 1);
}

void ReplicaPricing::Split(const Box& box) {
  const double rows_ratio = !CanSplitRows(box)   ? 1
                            : box.low == kNoRows ? 2
                                                 : RowsHigh(box) / RowsLow(box);
  const double period_ratio = box.slow / box.fast;
  if (period_ratio < 1 + query_->tolerance / 3 && rows_ratio < 1 + query_->tolerance / 3) {
    closed_ = std::max(closed_, box.bound);
    return;
  }
  Box a = box, b = box;
  if (period_ratio >= rows_ratio) {
    a.slow = b.fast = std::sqrt(box.fast * box.slow);
  } else {
    const int middle = box.low == kNoRows ? box.high - kPerOctave / 2 : (box.low + box.high) / 2;
    a.high = b.low = middle;
    if (box.low == kNoRows && RowsHigh(box) < 1.0 / 16) {
      closed_ = std::max(closed_, box.bound);
      return;
    }
    if (RowsLow(b) > 0) {
      b.slow = std::min(b.slow, limit_tpot_ / (b.micro_batches * RowsLow(b)) * kRounding);
    }
  }
  if (a.slow >= a.fast) Push(a);
  if (b.slow >= b.fast) Push(b);
}

bool ReplicaPricing::Overdrawn(const std::vector<int>& types) const {
  std::vector<int> used(static_cast<size_t>(classes_.size()), 0);
  for (const int t : types) {
    const StageType& type = types_[static_cast<size_t>(t)];
    int& count = used[static_cast<size_t>(type.device_class)];
    count += shapes_[type.shape].width;
    if (count > classes_[type.device_class].devices()) return true;
  }
  return false;
}

// Stages of classes that are overdrawn make room for the best of what is left. False: the layers do
// not fit any more.
bool ReplicaPricing::WithinCounts(const Box& box, std::vector<int>* types) {
  std::vector<int> left;
  for (const DeviceClass& of : classes_.all()) left.push_back(of.devices());
  std::vector<CoverItem> items = Items(box, StagePlace::kInner);
  KeepUndominated(&items);
  std::vector<int> layers(types_.size(), 0);
  for (const CoverItem& item : items) layers[static_cast<size_t>(item.type)] = item.layers;
  int covered = 0;
  std::erase_if(*types, [&](int t) {
    const StageType& type = types_[static_cast<size_t>(t)];
    int& count = left[static_cast<size_t>(type.device_class)];
    const int width = shapes_[type.shape].width;
    if (count < width) return true;
    count -= width;
    covered += layers[static_cast<size_t>(t)];
    return false;
  });
  std::stable_sort(items.begin(), items.end(), [](const CoverItem& a, const CoverItem& b) {
    return a.price * b.layers < b.price * a.layers;
  });
  for (size_t i = 0; i < items.size() && covered < shapes_.model().layers;) {
    const StageType& type = types_[static_cast<size_t>(items[i].type)];
    int& count = left[static_cast<size_t>(type.device_class)];
    const int width = shapes_[type.shape].width;
    if (count < width) {
      ++i;
      continue;
    }
    count -= width;
    covered += items[i].layers;
    types->insert(types->begin() + static_cast<long>(types->size() / 2), items[i].type);
  }
  return covered >= shapes_.model().layers && !types->empty();
}

std::pair<double, double> ReplicaPricing::LoadOf(const Box& box,
                                                 const std::vector<int>& types) const {
  Box at = box;
  at.stages = static_cast<int>(types.size());
  if (box.stages > 0) at.micro_batches = at.stages;
  return {prompts_only_ ? 0 : RowsHigh(at), KvTokens(at)};
}

// Rate over price of a replica of these stages, judged by the cost model; 0: it does not fit.
double ReplicaPricing::Judge(std::pair<double, double> load, const std::vector<int>& types,
                             ClassReplica* replica) {
  replica->role = query_->role;
  double price = 0;
  for (const int t : types) {
    const StageType& type = types_[static_cast<size_t>(t)];
    replica->stages.push_back({type.device_class, shapes_[type.shape].width, 0});
    price += type.price;
  }
  OrderStages(classes_, replica);
  const auto [rows, kv_tokens] = load;
  const double least_kv = LeastKvTokens(query_->role, shapes_.lengths(), shapes_.options());
  if (!DealLayers(classes_, &shapes_, rows, kv_tokens, replica) &&
      !DealLayers(classes_, &shapes_, rows, least_kv, replica)) {
    return 0;
  }
  replica->rate =
      CapacityOf(shapes_.model(), SpecOf(classes_, *replica), shapes_.lengths(), shapes_.options())
          .requests_per_second;
  return replica->rate / price;
}

void ReplicaPricing::Consider(const Box& box, const CoverProgram::Solution& solution) {
  std::vector<int> types;
  for (const CoverProgram::Stage& stage : solution.stages) types.push_back(stage.item.type);
  if (types.empty()) return;
  const bool overdrawn = Overdrawn(types);
  const std::pair<double, double> load = LoadOf(box, types);
  // What was judged before is no better than the best since then.
  if (seen_with_load_.emplace(load, types).second) {
    ClassReplica replica;
    const double ratio = Judge(load, types, &replica);
    if (ratio > best_) {
      best_ = ratio;
      answer_.found.push_back(std::move(replica));
    }
  }
  if (!overdrawn || query_->only_class >= 0 || !WithinCounts(box, &types)) return;
  if (!seen_.insert(types).second) return;
  ClassReplica legal;
  if (Judge(LoadOf(box, types), types, &legal) > kNearTarget * query_->target)
    answer_.found.push_back(std::move(legal));
}

}  // namespace tessera::scheduler

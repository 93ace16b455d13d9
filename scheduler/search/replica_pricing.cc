#include "scheduler/search/replica_pricing.h"

#include <algorithm>
#include <cmath>

namespace tessera::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kPerOctave = 64;     // grid of rows
constexpr int kNoRows = -1000000;  // on the grid: 0
constexpr double kRounding = 1 + 1e-6;
constexpr int kMultipliers = 4;      // tried for the sum of stages and hops
constexpr double kNearTarget = 0.7;  // worth a column where it is one that can be had
constexpr double kSmallBox = 1.2;
constexpr double kTokenIdBytes = 8;

double GridRows(int i) { return i == kNoRows ? 0 : std::exp2(static_cast<double>(i) / kPerOctave); }

// Least grid point at or above.
int GridAbove(double rows) {
  return static_cast<int>(std::ceil(std::log2(rows) * kPerOctave - 1e-9));
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
  answer_.bound = std::max(best_, closed_);
  for (const Box& box : heap_) answer_.bound = std::max(answer_.bound, box.bound);
  return std::move(answer_);
}

// --- Stages that can be had ---

LinkSpec ReplicaPricing::BestWayIn(int device_class, int width) const {
  LinkSpec best;
  const DeviceClass& to = classes_[device_class];
  for (int c = 0; c < classes_.size(); ++c) {
    if (query_->site >= 0 && classes_[c].site != query_->site) continue;
    Widen(&best, classes_.Apart(c, device_class));
    const bool together =
        c == device_class ? to.per_machine > width : classes_.Together(c, device_class);
    if (together) Widen(&best, to.inside);
  }
  return best;
}

void ReplicaPricing::MakeTypes() {
  types_.clear();
  std::vector<int> type_of(static_cast<size_t>(shapes_.size()), -1);
  for (int c = 0; c < classes_.size(); ++c) {
    if (query_->site >= 0 && classes_[c].site != query_->site) continue;
    if (query_->only_class >= 0 && c != query_->only_class) continue;
    for (size_t i = 0; i < shape_of_[static_cast<size_t>(c)].size(); ++i) {
      const int width = static_cast<int>(i) + 1;
      const int shape = shape_of_[static_cast<size_t>(c)][i];
      const double price = width * query_->prices[static_cast<size_t>(c)];
      const LinkSpec in = BestWayIn(c, width);
      int& type = type_of[static_cast<size_t>(shape)];
      if (type < 0) {
        type = static_cast<int>(types_.size());
        types_.push_back({shape, c, price, in});
        continue;
      }
      StageType& known = types_[static_cast<size_t>(type)];
      Widen(&known.in, in);
      if (price < known.price) {
        known.price = price;
        known.device_class = c;
      }
    }
  }
  crossing_ = {};
  if (query_->site >= 0) return;
  for (int a = 0; a < classes_.size(); ++a) {
    for (int b = 0; b < classes_.size(); ++b) {
      if (classes_[a].site != classes_[b].site) Widen(&crossing_, classes_.Apart(a, b));
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
  if (prompts_only_) return std::max(1.0, lengths.max_sequence_tokens);
  const double rows =
      RowsLow(box) * box.micro_batches * std::max(1.0, lengths.mean_decode_context());
  return std::max({1.0, lengths.max_sequence_tokens, rows / (1 - shapes_.options().kv_headroom)});
}

std::vector<CoverItem> ReplicaPricing::Items(const Box& box, StagePlace place) const {
  const double rows = RowsHigh(box), kv = KvTokens(box), period = box.slow * rows;
  const std::vector<ShapeSeconds>& seconds =
      shapes_.SecondsAt(query_->role, prompts_only_ ? 0 : rows);
  const double bytes = shapes_.RowsAt(query_->role, prompts_only_ ? 0 : rows) * shapes_.row_bytes();
  const bool head = place == StagePlace::kLast || place == StagePlace::kOnly;
  const double layers = shapes_.model().layers;
  std::vector<CoverItem> items;
  for (size_t t = 0; t < types_.size(); ++t) {
    const StageType& type = types_[t];
    const ShapeSeconds& s = seconds[static_cast<size_t>(type.shape)];
    double hop = 0;  // activations in; into the first stage only token ids come
    if (place == StagePlace::kFirst) hop = SecondsOver(type.in, kTokenIdBytes);
    if (place == StagePlace::kInner || place == StagePlace::kLast)
      hop = SecondsOver(type.in, bytes) + s.spread;
    if (hop > period) continue;
    const double fixed = s.fixed + (head ? s.head : 0);
    const double most =
        std::min({layers, (period - fixed) / s.layer, shapes_[type.shape].MemoryLayers(place, kv)});
    if (most * kRounding < 1) continue;
    items.push_back({static_cast<int>(t), static_cast<int>(most * kRounding), type.price,
                     fixed + hop, s.layer});
  }
  return items;
}

// What stages and hops may last in all within the slowest period of the box.
double ReplicaPricing::SumLimit(const Box& box) const {
  const double rows = RowsHigh(box);
  double limit = box.micro_batches * box.slow * rows;
  if (query_->site >= 0) return limit;
  // The way there and back again costs more than the best hop into a stage.
  const double bytes = shapes_.RowsAt(query_->role, prompts_only_ ? 0 : rows) * shapes_.row_bytes();
  double hop = 0;
  for (const StageType& type : types_) {
    const double in = SecondsOver(type.in, bytes);
    if (in < kInfinity) hop = std::max(hop, in);
  }
  limit -= std::max(0.0, SecondsOver(crossing_, bytes) - hop);
  return limit;
}

CoverProgram::Solution ReplicaPricing::OneStage(const Box& box) const {
  CoverProgram::Solution solution;
  for (const CoverItem& item : Items(box, StagePlace::kOnly)) {
    if (item.layers < shapes_.model().layers || item.price >= solution.price) continue;
    solution.price = item.price;
    solution.stages = {{item, item.layers}};
  }
  return solution;
}

CoverProgram::Solution ReplicaPricing::Cover(const Box& box) {
  if (box.stages == 1) return query_->site >= 0 ? OneStage(box) : CoverProgram::Solution();
  const bool any = box.stages == 0;
  std::vector<CoverItem> first = any ? std::vector<CoverItem>() : Items(box, StagePlace::kFirst);
  std::vector<CoverItem> inner = Items(box, StagePlace::kInner);
  std::vector<CoverItem> last = any ? std::vector<CoverItem>() : Items(box, StagePlace::kLast);
  const auto solve = [&](double multiplier, double limit) {
    return any ? cover_.CheapestOfAny(inner, multiplier, limit)
               : cover_.Cheapest(first, inner, last, box.stages, multiplier, limit);
  };
  std::vector<CoverItem>* lists[] = {&first, &inner, &last};
  double per_layer = kInfinity;
  for (const std::vector<CoverItem>* list : lists) {
    for (const CoverItem& item : *list) per_layer = std::min(per_layer, item.price / item.layers);
  }
  CoverProgram::Solution fluid;
  fluid.price = per_layer * shapes_.model().layers;
  const double interest = Interest();
  if (BoundOf(box, fluid.price) <= interest) return fluid;
  CoverProgram::Solution best = solve(0, 0);
  if (best.price == kInfinity || BoundOf(box, best.price) <= interest || box.slow == kInfinity)
    return best;
  // What the sum adds is little: it is worth its time where the box is small.
  if (!any && box.slow > kSmallBox * box.fast) return best;
  const double limit = SumLimit(box);
  if (limit <= 0) return {};
  double multiplier = best.price / limit, low = 0, high = 0;
  double price = best.price;
  for (int i = 0; i < kMultipliers; ++i) {
    CoverProgram::Solution priced = solve(multiplier, limit);
    price = std::max(price, priced.price);
    const bool keeps = priced.seconds <= limit;
    if (keeps) best.stages = priced.stages;
    if (BoundOf(box, price) <= interest) break;
    (keeps ? high : low) = multiplier;
    multiplier = low == 0 ? multiplier / 4 : high == 0 ? multiplier * 4 : std::sqrt(low * high);
  }
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
  int devices = 0;
  for (const DeviceClass& of : classes_.all()) {
    if (query_->site < 0 || of.site == query_->site) devices += of.devices();
  }
  const int layers = shapes_.model().layers;
  const int most = query_->only_class >= 0 ? layers : std::min(devices, layers);
  for (int stages = 1; stages <= most; ++stages) PushRoot(stages, stages);
  if (prompts_only_ || !query_->certify) return;
  for (int micro = 1; micro < most; ++micro) PushRoot(0, micro);
}

void ReplicaPricing::PushRoot(int stages, int micro_batches) {
  Box box;
  box.stages = stages;
  box.micro_batches = micro_batches;
  box.slow = kInfinity;
  if (!prompts_only_) {
    const bool below_one = micro_batches == 1 || std::isfinite(limit_tpot_);
    box.low = below_one ? kNoRows : 0;
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
  for (const StageType& type : types_)
    layer = std::min(layer, seconds[static_cast<size_t>(type.shape)].layer);
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
bool ReplicaPricing::WithinCounts(const Box& box, std::vector<int>* types) const {
  std::vector<int> left;
  for (const DeviceClass& of : classes_.all()) left.push_back(of.devices());
  std::vector<CoverItem> items = Items(box, StagePlace::kInner);
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

// Rate over price of a replica of these stages, judged by the cost model; 0: it does not fit.
double ReplicaPricing::Judge(const Box& box, const std::vector<int>& types, ClassReplica* replica) {
  replica->role = query_->role;
  double price = 0;
  for (const int t : types) {
    const StageType& type = types_[static_cast<size_t>(t)];
    replica->stages.push_back({type.device_class, shapes_[type.shape].width, 0});
    price += type.price;
  }
  OrderStages(classes_, replica);
  Box at = box;
  at.stages = static_cast<int>(types.size());
  if (box.stages > 0) at.micro_batches = at.stages;
  const double rows = prompts_only_ ? 0 : RowsHigh(at);
  if (!DealLayers(classes_, &shapes_, rows, KvTokens(at), replica) &&
      !DealLayers(classes_, &shapes_, rows, shapes_.lengths().max_sequence_tokens, replica)) {
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
  ClassReplica replica;
  const double ratio = Judge(box, types, &replica);
  if (ratio > best_) {
    best_ = ratio;
    answer_.found.push_back(std::move(replica));
  }
  if (!overdrawn || query_->only_class >= 0 || !WithinCounts(box, &types)) return;
  if (!seen_.insert(types).second) return;
  ClassReplica legal;
  if (Judge(box, types, &legal) > kNearTarget * query_->target)
    answer_.found.push_back(std::move(legal));
}

}  // namespace tessera::scheduler

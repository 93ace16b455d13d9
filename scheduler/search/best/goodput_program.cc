#include "scheduler/search/best/goodput_program.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>

#include "scheduler/cost/hand_over_bytes.h"

namespace tessera::scheduler {
namespace {

constexpr double kPackingGap = 5e-4;
constexpr int kPackingNodes = 1000;
constexpr size_t kMaxPacked = 180;    // columns of a whole-number program
constexpr double kPackedFrom = 0.85;  // of their price
constexpr double kUsed = 1e-6;
constexpr size_t kMaxPlaces = 40;
constexpr double kOfLinks = 0.5;  // that KV may take
constexpr double kAsGood = 0.99;  // of a column's rate
constexpr double kMinKept = 0.8;  // of it, where it served less

}  // namespace

GoodputProgram::GoodputProgram(const PlacementProblem& problem, const TwinPools& twins)
    : problem_(problem), pools_(problem.graph->pools()), twins_(twins) {
  MakePlaces();
}

void GoodputProgram::MakePlaces() {
  const std::vector<MachineNode>& machines = problem_.graph->machines();
  std::vector<std::string> names;  // by pool
  for (size_t p = 0; p < pools_.size(); ++p) {
    const std::vector<size_t>& twins = twins_.groups()[twins_.GroupOf(p)];
    names.push_back(machines[static_cast<size_t>(pools_[twins.front()].machine)].name);
  }
  if (std::set<std::string>(names.begin(), names.end()).size() > kMaxPlaces) {
    for (size_t p = 0; p < pools_.size(); ++p)
      names[p] = std::to_string(machines[static_cast<size_t>(pools_[p].machine)].group);
  }
  std::map<std::string, size_t> places;
  std::vector<std::set<int>> machines_of;
  for (size_t p = 0; p < pools_.size(); ++p) {
    const auto [at, fresh] = places.try_emplace(names[p], places.size());
    place_of_.push_back(at->second);
    if (fresh) machines_of.emplace_back();
    machines_of[at->second].insert(pools_[p].machine);
  }
  const RawKv kv = HandedOver(*problem_.model, MomentsOf(problem_.samples).prompt_tokens);
  links_.assign(places.size(), std::vector<double>(places.size(), 0));
  for (size_t p = 0; p < pools_.size(); ++p) {
    for (size_t q = 0; q < pools_.size(); ++q) {
      double& most = links_[place_of_[p]][place_of_[q]];
      if (pools_[p].machine == pools_[q].machine) {
        if (machines_of[place_of_[p]].size() == 1) most = kUnbounded;
        continue;
      }
      const LinkSpec& link = problem_.graph->Between(pools_[p].machine, pools_[q].machine);
      const KvTransfer transfer =
          BestKvTransfer(kv, link, problem_.model->layers, 0, problem_.codec_rates);
      const size_t links =
          std::min(machines_of[place_of_[p]].size(), machines_of[place_of_[q]].size());
      most = std::max(most, static_cast<double>(links) * kOfLinks / transfer.seconds);
    }
  }
}

GoodputProgram::Counts GoodputProgram::UsedBy(const PlacedReplica& replica) const {
  return DevicesByPool(replica.stages, pools_.size());
}

GoodputProgram::Parts GoodputProgram::PartsOf(const PlacedReplica& replica) const {
  std::map<size_t, double> parts;
  for (const LayoutStage& stage : replica.stages) {
    parts[place_of_[static_cast<size_t>(stage.pool)]] +=
        static_cast<double>(stage.layers) / problem_.model->layers;
  }
  return {parts.begin(), parts.end()};
}

void GoodputProgram::Add(const PlacedReplica& replica) {
  if (replica.stages.empty() || replica.rate.requests_per_second <= 0) return;
  const Counts set = UsedBy(replica), first = twins_.FirstCopy(set);
  const double rate = replica.rate.requests_per_second;
  const auto [at, fresh] = column_of_.emplace(std::pair(replica.role, first), columns_.size());
  if (fresh) columns_.emplace_back();
  Known& known = columns_[at->second];
  const double given = known.replica.rate.requests_per_second;
  if (!fresh && rate <= given) return;
  ++version_;
  const double kept = fresh ? 1 : known.column.rate / given;  // of what it says, as was learnt
  const PlacedReplica moved = twins_.ToFirstCopy(set, replica);
  known = {moved, first, {replica.role, kept * rate, ByGroup(first), 0, PartsOf(moved)}};
}

const PlacedReplica* GoodputProgram::Find(Role role, const Counts& set) const {
  const auto column = column_of_.find(std::pair(role, twins_.FirstCopy(set)));
  return column == column_of_.end() ? nullptr : &columns_[column->second].replica;
}

std::vector<PlacedReplica> GoodputProgram::NearPrice(double part) const {
  std::vector<PlacedReplica> near;
  for (const Known& known : columns_) {
    if (known.column.role == Role::kBoth && known.column.rate >= part * PriceOf(known.column))
      near.push_back(known.replica);
  }
  return near;
}

Grouping GoodputProgram::used() const {
  Grouping used;
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (copies_[c] > kUsed) used.push_back({columns_[c].column.role, columns_[c].used});
  }
  return used;
}

GoodputProgram::Counts GoodputProgram::ByGroup(const Counts& set) const {
  Counts devices(2 * twins_.groups().size(), 0);
  for (size_t p = 0; p < set.size(); ++p) {
    devices[2 * twins_.GroupOf(p)] += set[p];
    devices[2 * twins_.GroupOf(p) + 1] += 2 * set[p] > pools_[p].count ? 1 : 0;
  }
  return devices;
}

double GoodputProgram::PriceOf(const Column& column) const {
  return std::inner_product(prices_.begin(), prices_.end(), column.devices.begin(), 0.0);
}

double GoodputProgram::PriceOf(const Counts& set) const {
  return PriceOf(Column{.devices = ByGroup(set)});
}

std::vector<double> GoodputProgram::DevicePrices() const {
  std::vector<double> prices;
  for (size_t p = 0; p < pools_.size(); ++p) prices.push_back(prices_[2 * twins_.GroupOf(p)]);
  return prices;
}

double GoodputProgram::WorthOf(Role role, const Parts& parts) const {
  if (role == Role::kBoth) return 1;
  double worth = 0;
  for (const auto& [place, part] : parts)
    worth += part * (role == Role::kPrefill ? prefill_prices_ : decode_prices_)[place];
  return worth;
}

// Layers are taken to be where the memory is.
double GoodputProgram::WorthOf(Role role, const Counts& set) const {
  std::map<size_t, double> parts;
  double bytes = 0;
  for (size_t p = 0; p < set.size(); ++p) {
    if (set[p] == 0) continue;
    parts[place_of_[p]] += set[p] * pools_[p].spec->memory_bytes;
    bytes += set[p] * pools_[p].spec->memory_bytes;
  }
  for (auto& [place, part] : parts) part /= bytes;
  return WorthOf(role, Parts(parts.begin(), parts.end()));
}

bool GoodputProgram::Relax(bool split) {
  const std::pair now(version_, split);
  if (relaxed_ == now) return true;
  relaxed_.first = -1;
  std::vector<size_t> all(columns_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  if (columns_.empty() || !Solve(false, split, all, &copies_)) return false;
  PriceUnusedRoles();
  relaxed_ = now;
  return true;
}

// Where nothing is split the program does not say what prefilling is worth and what decoding. They
// are worth what makes the best replicas of both come as close to their price.
void GoodputProgram::PriceUnusedRoles() {
  double prefill = 0, decode = 0;  // requests per second, per price
  for (size_t c = 0; c < columns_.size(); ++c) {
    const Column& column = columns_[c].column;
    if (column.role == Role::kBoth) continue;
    if (copies_[c] > kUsed) return;
    const double price = PriceOf(column);
    if (price <= 0) continue;
    double& best = column.role == Role::kPrefill ? prefill : decode;
    best = std::max(best, column.rate / price);
  }
  if (prefill <= 0 || decode <= 0) return;
  std::fill(prefill_prices_.begin(), prefill_prices_.end(), decode / (prefill + decode));
  std::fill(decode_prices_.begin(), decode_prices_.end(), prefill / (prefill + decode));
}

bool GoodputProgram::Solve(bool whole, bool split, const std::vector<size_t>& chosen,
                           std::vector<double>* values) {
  ColumnTerms terms;
  for (const std::vector<size_t>& group : twins_.groups()) {
    const auto pools = static_cast<double>(group.size());
    terms.available.push_back(pools_[group.front()].count * pools);
    terms.available.push_back(pools);
  }
  terms.carried = links_;
  if (!split) terms.carried.assign(links_.size(), std::vector<double>(links_.size(), 0));
  terms.whole = whole;
  ColumnProgram program(terms);
  for (const size_t c : chosen) {
    const Column& column = columns_[c].column;
    program.Add(column, column.role == Role::kBoth || split ? kUnbounded : 0);
  }
  absl::StatusOr<ColumnProgram::Answer> answer =
      program.Solve(kPackingGap, kPackingNodes, problem_.watch.stop);
  if (!answer.ok()) return false;
  *values = std::move(answer->copies);
  (whole ? packed_value_ : value_) = answer->objective;
  if (whole) return true;
  prices_ = std::move(answer->device_prices);
  prefill_prices_ = std::move(answer->prefill_prices);
  decode_prices_ = std::move(answer->decode_prices);
  return true;
}

std::vector<size_t> GoodputProgram::Promising(bool split) const {
  std::vector<std::pair<double, size_t>> ranked;
  for (size_t c = 0; c < columns_.size(); ++c) {
    const Column& column = columns_[c].column;
    if (column.role != Role::kBoth && !split) continue;
    const double worth = column.rate * WorthOf(column.role, column.parts);
    const double price = PriceOf(column);
    if (worth >= kPackedFrom * price) ranked.emplace_back(worth > 0 ? price / worth : 1, c);
  }
  std::sort(ranked.begin(), ranked.end());
  std::map<Role, size_t> taken;
  std::set<size_t> chosen(packed_[false].columns.begin(), packed_[false].columns.end());
  if (split) chosen.insert(packed_[true].columns.begin(), packed_[true].columns.end());
  for (const auto& [rank, c] : ranked) {
    if (taken[columns_[c].column.role]++ < kMaxPacked / (split ? 3 : 1)) chosen.insert(c);
  }
  return {chosen.begin(), chosen.end()};
}

// Twins have devices together in the program: where what is left in each of them does not do, a
// replica is left out.
std::vector<PlacedReplica> GoodputProgram::Placed(const std::vector<size_t>& columns) const {
  Counts free;
  for (const DevicePool& pool : pools_) free.push_back(pool.count);
  std::vector<PlacedReplica> replicas;
  for (const size_t c : columns) {
    const std::optional<Counts> copy = twins_.CopyWithin(columns_[c].used, free);
    if (!copy) continue;
    for (size_t p = 0; p < free.size(); ++p) free[p] -= (*copy)[p];
    replicas.push_back(twins_.FromFirstCopy(*copy, columns_[c].replica));
  }
  return replicas;
}

std::vector<PlacedReplica> GoodputProgram::Pack(bool split) {
  packed_value_ = 0;
  std::vector<double> copies;
  if (!Relax(split)) return {};
  Packing& known = packed_[split];
  const int64_t whole_version = split ? packed_[false].version : -1;
  if (known.version == version_ && known.whole_version == whole_version) {
    packed_value_ = known.value;
    return Placed(known.columns);
  }
  const std::vector<size_t> chosen = Promising(split);
  if (chosen.empty() || !Solve(true, split, chosen, &copies)) return {};
  std::vector<size_t> packed;
  for (size_t i = 0; i < chosen.size(); ++i)
    packed.insert(packed.end(), static_cast<size_t>(std::max(0L, std::lround(copies[i]))),
                  chosen[i]);
  // Those with most devices of one pool have the fewest places to go.
  std::stable_sort(packed.begin(), packed.end(), [&](size_t a, size_t b) {
    const auto most = [&](size_t c) {
      return *std::max_element(columns_[c].used.begin(), columns_[c].used.end());
    };
    return most(a) > most(b);
  });
  known = {version_, whole_version, packed_value_, packed};
  return Placed(packed);
}

bool GoodputProgram::Learn(const std::vector<PlacedReplica>& dealt, const Placement& placement) {
  std::vector<double> served(dealt.size(), 0);
  for (const Share& share : placement.shares) {
    if (share.prefill == share.decode) continue;
    served[static_cast<size_t>(share.prefill)] += share.requests_per_second;
    served[static_cast<size_t>(share.decode)] += share.requests_per_second;
  }
  // A column that several replicas use counts as the one that served most, so that it is not
  // underrated.
  std::map<size_t, double> most;
  for (size_t i = 0; i < dealt.size(); ++i) {
    if (dealt[i].role == Role::kBoth) continue;
    double& rate = most[column_of_.at({dealt[i].role, twins_.FirstCopy(UsedBy(dealt[i]))})];
    rate = std::max(rate, served[i]);
  }
  bool learnt = false;
  for (const auto& [c, rate] : most) {
    double& column = columns_[c].column.rate;
    if (rate >= column * kAsGood) continue;
    column = std::max(rate, kMinKept * column);
    ++version_;
    learnt = true;
  }
  return learnt;
}

}  // namespace tessera::scheduler

#include "scheduler/search/layout/split_attainment.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tessera::scheduler {
namespace {

constexpr double kMinLeft = 1e-3;  // of a link; with less a transfer hardly ends
constexpr double kPartTolerance = 1e-3;

}  // namespace

KvPath PathOf(const PlacementProblem& problem, const RateProgram::Pair& pair) {
  KvPath path;
  path.link = pair.link;
  path.codec = pair.codec;
  path.codec_rates = problem.codec_rates;
  return path;
}

SplitAttainment::SplitAttainment(const PlacementProblem& problem, const AttainmentModel& model,
                                 const std::vector<PlacedReplica>& replicas)
    : problem_(problem),
      model_(model),
      replicas_(replicas),
      transport_(PairsOf(problem, model, replicas)),
      speeds_(replicas.size()),
      curves_(replicas.size()) {
  for (size_t i = 0; i < replicas.size(); ++i) {
    const PlacedReplica& replica = replicas[i];
    if (replica.role == Role::kBoth || replica.stages.empty()) continue;
    const ReplicaSpec spec = SpecOf(problem, replica);
    const int m = std::max(1, replica.rate.micro_batches);
    if (replica.role == Role::kPrefill) {
      speeds_[i] = model.PrefillBeside(spec, m, 0, 0);
    } else {
      curves_[i] =
          model.DecodeCurveOf(spec, m, replica.rate.kv_capacity_tokens,
                              WithSeats(problem.options, replica.rate.seats).max_sequences);
    }
  }
}

RateProgram SplitAttainment::PairsOf(const PlacementProblem& problem, const AttainmentModel& model,
                                     const std::vector<PlacedReplica>& replicas) {
  std::vector<const PlacedReplica*> given;
  for (const PlacedReplica& replica : replicas) given.push_back(&replica);
  return MakeRateProgram(problem, model.lengths(), given);
}

std::vector<double> SplitAttainment::RatesOf(const std::vector<Share>& shares) const {
  std::map<std::pair<int, int>, double> rates;
  for (const Share& share : shares)
    rates[{share.prefill, share.decode}] += share.requests_per_second;
  std::vector<double> by_pair;
  for (const RateProgram::Pair& pair : transport_.pairs) {
    const auto found = rates.find({pair.prefill, pair.decode});
    by_pair.push_back(found == rates.end() ? 0 : found->second);
  }
  return by_pair;
}

std::vector<KvPath> SplitAttainment::PathsAt(const std::vector<double>& pair_rates) const {
  std::vector<double> busy(transport_.pairs.size(), 0);  // part of the time of its links
  for (size_t k = 0; k < busy.size(); ++k) {
    const double most = transport_.pairs[k].link_rate;
    if (most > 0) busy[k] = pair_rates[k] / most;
  }
  for (const LoadedLink& link : transport_.shared) {
    double bytes = 0;
    for (const auto& [pair, factor] : link.uses) bytes += factor * pair_rates[pair];
    for (const auto& [pair, factor] : link.uses)
      busy[pair] = std::max(busy[pair], bytes / link.rate);
  }
  std::vector<KvPath> paths;
  for (size_t k = 0; k < busy.size(); ++k) {
    paths.push_back(PathOf(problem_, transport_.pairs[k]));
    paths.back().link.bytes_per_second *= std::max(kMinLeft, 1 - busy[k]);
  }
  return paths;
}

SplitAttainment::Operation SplitAttainment::At(const std::vector<double>& pair_rates) const {
  const std::vector<RateProgram::Pair>& pairs = transport_.pairs;
  const std::vector<KvPath> paths = PathsAt(pair_rates);
  std::vector<double> rates(replicas_.size(), 0);
  for (size_t k = 0; k < pairs.size(); ++k) {
    rates[static_cast<size_t>(pairs[k].prefill)] += pair_rates[k];
    rates[static_cast<size_t>(pairs[k].decode)] += pair_rates[k];
  }
  std::vector<double> sending(replicas_.size(), 0), kept = sending;  // tokens
  for (size_t k = 0; k < pairs.size(); ++k) {
    if (pair_rates[k] <= 0) continue;
    const auto prefill = static_cast<size_t>(pairs[k].prefill);
    sending[prefill] += pair_rates[k] * model_.KeptBefore(speeds_[prefill], 0, paths[k]);
    kept[static_cast<size_t>(pairs[k].decode)] +=
        pair_rates[k] * model_.KeptBefore(speeds_[prefill], rates[prefill], paths[k]);
  }
  Operation operation;
  operation.decode.resize(replicas_.size());
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (replicas_[i].role == Role::kBoth || rates[i] <= 0) continue;
    double held = sending[i];
    if (replicas_[i].role == Role::kDecode) {
      operation.decode[i] = model_.LoadOf(curves_[i], rates[i], kept[i]);
      held = kept[i] + rates[i] * operation.decode[i].mean_tpot_seconds() *
                           model_.lengths().decode_context_sum;
    }
    operation.kv_fits &=
        held <= (1 - problem_.options.kv_headroom) * replicas_[i].rate.kv_capacity_tokens;
  }
  for (size_t k = 0; k < pairs.size(); ++k) {
    const auto prefill = static_cast<size_t>(pairs[k].prefill);
    operation.pairs.push_back(
        pair_rates[k] <= 0
            ? Attained()
            : model_.At(speeds_[prefill], rates[prefill],
                        operation.decode[static_cast<size_t>(pairs[k].decode)], &paths[k]));
  }
  return operation;
}

bool SplitAttainment::Enough(const std::vector<double>& pair_rates) const {
  const Operation operation = At(pair_rates);
  if (!operation.kv_fits) return false;
  std::vector<double> within(problem_.classes.size(), 0);
  double all = 0;
  for (size_t k = 0; k < pair_rates.size(); ++k) {
    if (pair_rates[k] <= 0) continue;
    all += pair_rates[k];
    for (size_t c = 0; c < within.size(); ++c)
      within[c] += pair_rates[k] * operation.pairs[k].by_class[c];
  }
  for (double& part : within) part /= all;
  return EnoughAttained(problem_.classes, within);
}

double SplitAttainment::PartWithinLimits(const std::vector<double>& pair_rates) const {
  if (std::all_of(pair_rates.begin(), pair_rates.end(), [](double r) { return r <= 0; })) return 1;
  const auto enough = [&](double part) {
    std::vector<double> rates = pair_rates;
    for (double& rate : rates) rate *= part;
    return Enough(rates);
  };
  if (enough(1)) return 1;
  double low = 0, high = 1;
  while (high - low > kPartTolerance) {
    const double middle = (low + high) / 2;
    (enough(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace tessera::scheduler

#include "scheduler/search/baselines/overlapping_layers.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace tessera::scheduler {
namespace {

using Holders = std::vector<LayerHolder>;

constexpr double kGain = 1 + 1e-9;
constexpr int kFirstStep = 12;   // part of the layers that a range moves by at first
constexpr double kFilled = 0.5;  // of memory, by the weights of a start after Helix

// Whether two holders that are used have ranges that overlap and differ.
bool Overlaps(const Holders& holders, const RoutedLayers& routed) {
  std::vector<bool> used(holders.size(), false);
  for (const LayerRoute& route : routed.routes) {
    for (const LayerRoute::Part& part : route.parts) used[static_cast<size_t>(part.holder)] = true;
  }
  for (size_t a = 0; a < holders.size(); ++a) {
    for (size_t b = a + 1; b < holders.size(); ++b) {
      const LayerHolder &x = holders[a], &y = holders[b];
      if (!used[a] || !used[b] || (x.first_layer == y.first_layer && x.layers == y.layers))
        continue;
      if (x.first_layer < y.end() && y.first_layer < x.end()) return true;
    }
  }
  return false;
}

class OverlapSearch {
 public:
  OverlapSearch(const PlacementProblem& problem, const Placement& chosen,
                const OverlappingOptions& options)
      : problem_(problem),
        chosen_(chosen),
        options_(options),
        pools_(problem.graph->pools()),
        layers_(problem.model->layers) {}

  OverlappingSearch Run() {
    FindIdle();
    std::vector<size_t> all;
    bool split = false;
    for (size_t i = 0; i < chosen_.replicas.size(); ++i) {
      all.push_back(i);
      split = split || chosen_.replicas[i].role != Role::kBoth;
    }
    // Weak replicas gain first.
    std::stable_sort(all.begin(), all.end(), [&](size_t a, size_t b) {
      return chosen_.replicas[a].rate.requests_per_second <
             chosen_.replicas[b].rate.requests_per_second;
    });
    Start(AfterHelix(), {});
    StartFrom(all, all);
    for (size_t i = 0; i < all.size() && !split; ++i) {
      StartFrom({all[i]}, all);
      if (i + 1 < all.size()) StartFrom({all[i], all[i + 1]}, all);
    }
    Improve();
    return std::move(found_);
  }

 private:
  bool Spent() const {
    return found_.placements >= options_.most_placements || problem_.watch.Stopped();
  }

  void FindIdle() {
    for (const DevicePool& pool : pools_) idle_.push_back(pool.count);
    for (const PlacedReplica& replica : chosen_.replicas) {
      for (const LayoutStage& stage : replica.stages)
        idle_[static_cast<size_t>(stage.pool)] -= stage.width;
    }
  }

  void StartFrom(const std::vector<size_t>& joined, const std::vector<size_t>& all) {
    Holders holders;
    for (const size_t i : joined) {
      int layer = 0;
      for (const LayoutStage& stage : chosen_.replicas[i].stages) {
        AddTo(&holders, {stage.pool, stage.width, layer, stage.layers, 1});
        layer += stage.layers;
      }
    }
    std::vector<size_t> kept;
    for (const size_t i : all) {
      if (std::find(joined.begin(), joined.end(), i) == joined.end()) kept.push_back(i);
    }
    Start(std::move(holders), kept);
  }

  // The network as it is, and with every idle pool where it helps most.
  void Start(Holders holders, const std::vector<size_t>& kept) {
    double value = Judge(holders, kept);
    const bool helix = kept.empty() && !holders.empty() && Devices(holders) == AllDevices();
    for (size_t p = 0; p < pools_.size() && !helix; ++p) {
      if (idle_[p] <= 0) continue;
      Holders best;
      for (const LayerHolder& place : PlacesOf(static_cast<int>(p), holders)) {
        Holders with = holders;
        AddTo(&with, place);
        const double with_value = Judge(with, kept);
        if (with_value <= value * kGain) continue;
        value = with_value;
        best = std::move(with);
      }
      if (!best.empty()) holders = std::move(best);
    }
  }

  static int Devices(const Holders& holders) {
    int devices = 0;
    for (const LayerHolder& holder : holders) devices += holder.width * holder.copies;
    return devices;
  }
  int AllDevices() const { return problem_.graph->devices(); }

  LayerHolder IdleHolder(int pool, int devices) const {
    const int width = std::min(static_cast<int>(std::bit_floor(static_cast<unsigned>(devices))),
                               MaxWidth(*problem_.model));
    return {pool, width, 0, 0, devices / width};
  }

  // The most layers from `first` on that fit.
  int MostLayers(LayerHolder holder, int first) const {
    int low = 0, high = layers_ - first;
    holder.first_layer = first;
    while (low < high) {
      holder.layers = (low + high + 1) / 2;
      if (HolderFits(problem_, holder)) {
        low = holder.layers;
      } else {
        high = holder.layers - 1;
      }
    }
    return low;
  }

  // From where a range of the network begins, or up to where one ends: half of what fits.
  std::vector<LayerHolder> PlacesOf(int pool, const Holders& holders) const {
    std::vector<LayerHolder> places;
    LayerHolder place = IdleHolder(pool, idle_[static_cast<size_t>(pool)]);
    for (const LayerHolder& holder : holders) {
      place.first_layer = holder.first_layer;
      place.layers = std::min(holder.layers, MostLayers(place, holder.first_layer));
      if (place.layers > 1) place.layers = (place.layers + 1) / 2;
      if (place.layers <= 0) continue;
      places.push_back(place);
    }
    return places;
  }

  // All devices by pools, the largest ranges first, each where the least work can be done so far.
  Holders AfterHelix() const {
    Holders holders;
    for (size_t p = 0; p < pools_.size(); ++p) {
      LayerHolder holder = IdleHolder(static_cast<int>(p), pools_[p].count);
      const int copies = std::exchange(holder.copies, 1);
      holder.layers = static_cast<int>(kFilled * MostLayers(holder, 0));
      if (holder.layers <= 0) continue;
      holders.insert(holders.end(), static_cast<size_t>(copies), holder);
    }
    std::stable_sort(holders.begin(), holders.end(),
                     [](const auto& a, const auto& b) { return a.layers > b.layers; });
    std::vector<double> cover(static_cast<size_t>(layers_), 0);
    Holders placed;
    for (LayerHolder holder : holders) {
      double least = -1;
      for (int first = 0; first + holder.layers <= layers_; ++first) {
        double sum = 0;
        for (int layer = first; layer < first + holder.layers; ++layer)
          sum += cover[static_cast<size_t>(layer)];
        if (least >= 0 && sum >= least) continue;
        least = sum;
        holder.first_layer = first;
      }
      const double speed = holder.width *
                           pools_[static_cast<size_t>(holder.pool)].spec->effective_flops() /
                           holder.layers;
      for (int layer = holder.first_layer; layer < holder.end(); ++layer)
        cover[static_cast<size_t>(layer)] += speed;
      AddTo(&placed, holder);
    }
    return placed;
  }

  static void AddTo(Holders* holders, const LayerHolder& added) {
    for (LayerHolder& holder : *holders) {
      LayerHolder like = holder;
      like.copies = added.copies;
      if (like != added) continue;
      holder.copies += added.copies;
      return;
    }
    holders->push_back(added);
  }

  // What network and kept replicas serve; the best that overlaps is kept.
  double Judge(const Holders& holders, const std::vector<size_t>& kept) {
    if (Spent() || holders.empty() || static_cast<int>(holders.size()) > options_.most_holders)
      return 0;
    ++found_.placements;
    OverlappingPlacement placement;
    placement.routed = BestRoutes(problem_, holders, options_.routes);
    if (placement.routed.requests_per_second <= 0) return 0;
    placement.requests_per_second = placement.routed.requests_per_second;
    for (const size_t i : kept)
      placement.requests_per_second += chosen_.replicas[i].rate.requests_per_second;
    placement.holders = holders;
    placement.kept = kept;
    const double value = placement.requests_per_second;
    if (value > start_.requests_per_second) start_ = placement;
    if (Overlaps(holders, placement.routed) &&
        (!found_.best || value > found_.best->requests_per_second)) {
      found_.best = std::move(placement);
    }
    return value;
  }

  void Improve() {
    if (start_.holders.empty()) return;
    for (int step = std::max(1, layers_ / kFirstStep); step > 0 && !Spent();) {
      if (!ImproveBy(step)) step /= 2;
    }
  }

  // One device group's range grows, shrinks or shifts.
  bool ImproveBy(int step) {
    const double before = start_.requests_per_second;
    const OverlappingPlacement here = start_;
    const std::pair<int, int> moves[] = {{0, step},    {-step, 0}, {-step, -step},
                                         {step, step}, {step, 0},  {0, -step}};
    for (size_t h = 0; h < here.holders.size(); ++h) {
      for (const auto& [begin, end] : moves) {
        LayerHolder moved = here.holders[h];
        moved.copies = 1;
        moved.first_layer += begin;
        moved.layers += end - begin;
        if (moved.first_layer < 0 || moved.layers < 1 || moved.end() > layers_) continue;
        Holders holders = here.holders;
        if (--holders[h].copies == 0) holders.erase(holders.begin() + static_cast<int>(h));
        AddTo(&holders, moved);
        if (Judge(holders, here.kept) > before * kGain) return true;
        if (Spent()) return false;
      }
    }
    return false;
  }

  const PlacementProblem& problem_;
  const Placement& chosen_;
  const OverlappingOptions options_;
  const std::vector<DevicePool>& pools_;
  const int layers_;
  std::vector<int> idle_;       // devices, by pool
  OverlappingPlacement start_;  // the best, whether ranges overlap or not
  OverlappingSearch found_;
};

}  // namespace

OverlappingSearch SearchOverlapping(const PlacementProblem& problem, const Placement& chosen,
                                    const OverlappingOptions& options) {
  return OverlapSearch(problem, chosen, options).Run();
}

}  // namespace tessera::scheduler

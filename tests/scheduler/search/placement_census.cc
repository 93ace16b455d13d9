#include "tests/scheduler/search/placement_census.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "proto/cluster.pb.h"
#include "scheduler/search/math/seeded_random.h"

namespace tessera::tests {
namespace {

using scheduler::LayoutStage;
using scheduler::Role;

constexpr double kGib = 1073741824.0;
constexpr double kLayerGib = 0.41;  // weights of a layer of the model below

enum class Sort { kUneven, kComputersAndReaders, kStragglers, kAnything };

Sort SortOf(int seed) {
  constexpr Sort kSorts[] = {Sort::kUneven, Sort::kComputersAndReaders, Sort::kComputersAndReaders,
                             Sort::kStragglers, Sort::kAnything};
  return kSorts[seed % 5];
}

class Maker {
 public:
  Maker(int seed, bool unlike_links, CensusInstance* instance)
      : sort_(SortOf(seed)),
        unlike_links_(unlike_links),
        random_(static_cast<uint64_t>(seed) + 1),
        links_(static_cast<uint64_t>(seed) + 1000003),
        instance_(*instance) {
    // Most are small: the number of layouts grows by a factor of ten with each device.
    const bool large = seed % 10 == 7;
    devices_ = large ? Int(7, 8) : Int(4, 6);
    layers_ = large ? Int(8, 9) : Int(8, devices_ == 6 ? 12 : 16);
    kinds_ = Int(2, std::min(4, devices_));
    machines_ = Int(2, 3);
  }

  void Make() {
    MakeModel();
    for (int i = 0; i < kinds_; ++i) AddKind(i);
    AddMachines();
    if (unlike_links_) AddUnlikeLinks();
    instance_.graph = *scheduler::MakeClusterGraph(cluster_, v1::DeviceCatalogue(), "census");
    scheduler::PlacementProblem& problem = instance_.problem;
    problem.model = &instance_.model;
    problem.graph = &instance_.graph;
    const bool computers = sort_ == Sort::kComputersAndReaders;
    problem.samples = {{Uniform(computers ? 1000 : 100, computers ? 4000 : 2000),
                        Uniform(20, computers ? 300 : 400), 1}};
    problem.options.memory.runtime_reserve_bytes = 0.5 * kGib;
    problem.options.memory.max_step_tokens = 512;
    if (computers) {
      problem.options.max_tpot_seconds = Uniform(0.01, 0.04);
    } else if (Uniform(0, 1) < 0.3) {
      problem.options.max_tpot_seconds = Uniform(0.02, 0.1);
    }
  }

 private:
  double Uniform(double low, double high) { return low + (high - low) * random_.Unit(); }
  int Int(int low, int high) { return low + random_.Below(high - low + 1); }

  void MakeModel() {
    scheduler::ModelShape& model = instance_.model;
    model.name = "m";
    model.layers = layers_;
    model.hidden = model.embedding_width = 4096;
    model.kinds = {
        {.hidden = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .ffn_width = 14336}};
    model.vocabulary = 32000;
  }

  void AddKind(int i) {
    v1::DeviceKind* kind = cluster_.add_kinds();
    kind->set_name("k" + std::to_string(i));
    // Between too small for an even share and room for the model, or for several devices' shares.
    const double even_gib = kLayerGib * layers_ / devices_;
    double gib = even_gib * Uniform(0.3, 2.0) + 1.4;
    double bytes = Uniform(100e9, 2000e9), flops = Uniform(15e12, 400e12);
    if (sort_ == Sort::kComputersAndReaders) {
      const bool computes = i % 2 == 0;
      gib = even_gib * devices_ * Uniform(0.4, 1.3) + (computes ? 1.6 : 3.0);
      bytes = computes ? Uniform(200e9, 600e9) : Uniform(1000e9, 2000e9);
      flops = computes ? Uniform(200e12, 400e12) : Uniform(15e12, 60e12);
    } else if (sort_ == Sort::kStragglers) {
      gib = kLayerGib * layers_ * Uniform(0.4, 1.2) + 2;
      if (i == 0) {
        gib = even_gib * Uniform(0.3, 1.5) + 1.4;
        bytes = Uniform(10e9, 40e9);
        flops = Uniform(1e12, 5e12);
      }
    }
    kind->set_memory_bytes(static_cast<int64_t>(gib * kGib));
    kind->set_memory_bandwidth_bytes_per_second(bytes);
    kind->set_dense_flops_per_second(flops);
    kind->set_prefill_efficiency(0.6);
    kind->set_decode_efficiency(0.8);
    kind->set_layer_overhead_seconds(Uniform(10e-6, 200e-6));
  }

  static void SetLink(double gigabytes, double latency_seconds, v1::Link* link) {
    link->set_bandwidth_bytes_per_second(gigabytes * 1e9);
    link->set_latency_seconds(latency_seconds);
  }

  void AddMachines() {
    for (int i = 0; i < machines_; ++i) {
      v1::Machine* machine = cluster_.add_machines();
      machine->set_name("m" + std::to_string(i));
      SetLink(Uniform(4, 100), Uniform(2e-6, 30e-6), machine->mutable_inside());
    }
    const bool fast = sort_ == Sort::kComputersAndReaders;
    // Every fourth fast one is not.
    SetLink(fast ? random_.Below(4) == 0 ? Uniform(0.02, 0.2) : Uniform(1, 25) : Uniform(0.05, 2),
            Uniform(20e-6, fast ? 100e-6 : 5e-3), cluster_.mutable_tiers()->mutable_site());
    // Kinds are dealt to machines, then devices to the resulting pools.
    const int pools = std::max(kinds_, machines_);
    std::vector<v1::DeviceGroup*> groups;
    for (int i = 0; i < pools; ++i) {
      v1::DeviceGroup* group = cluster_.mutable_machines(i % machines_)->add_devices();
      group->set_kind("k" + std::to_string(i % kinds_));
      group->set_count(1);
      groups.push_back(group);
    }
    for (int i = pools; i < devices_; ++i) {
      v1::DeviceGroup* group = groups[static_cast<size_t>(random_.Below(pools))];
      group->set_count(group->count() + 1);
    }
  }

  // A link for every pair, half of them other in the other direction, and uplinks for some.
  void AddUnlikeLinks() {
    const auto link = [&](v1::Link* out) {
      SetLink(0.02 + 5 * links_.Unit() * links_.Unit(), 10e-6 + 2e-3 * links_.Unit(), out);
    };
    for (int a = 0; a < machines_; ++a) {
      if (links_.Below(3) == 0) link(cluster_.mutable_machines(a)->mutable_uplink());
      for (int b = a + 1; b < machines_; ++b) {
        const bool one_way = links_.Below(2) == 0;
        for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
          if (from > to && !one_way) continue;
          v1::PairLink* pair = cluster_.add_links();
          pair->set_from(cluster_.machines(from).name());
          pair->set_to(cluster_.machines(to).name());
          pair->set_one_way(one_way);
          link(pair->mutable_link());
        }
      }
    }
  }

  const Sort sort_;
  const bool unlike_links_;
  scheduler::SeededRandom random_;
  scheduler::SeededRandom links_;  // what unlike links add: leaves the rest as it is
  CensusInstance& instance_;
  v1::Cluster cluster_;
  int devices_ = 0, layers_ = 0, kinds_ = 0, machines_ = 0;
};

bool Alike(const std::vector<LayoutStage>& a, const std::vector<LayoutStage>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const LayoutStage& x, const LayoutStage& y) {
                      return x.width == y.width && x.layers == y.layers;
                    });
}

bool EvenFits(const scheduler::PlacementProblem& problem) {
  scheduler::LayoutProblem layout;
  layout.model = problem.model;
  layout.graph = problem.graph;
  std::vector<int> pool_of;
  for (const auto& pool : problem.graph->pools()) {
    pool_of.insert(pool_of.end(), static_cast<size_t>(pool.count),
                   static_cast<int>(layout.pools.size()));
    layout.pools.push_back({pool.spec, pool.machine, pool.count});
  }
  std::vector<LayoutStage> stages;
  const int devices = static_cast<int>(pool_of.size());
  for (int i = 0; i < devices; ++i) {
    stages.push_back(
        {pool_of[static_cast<size_t>(i)], 1,
         problem.model->layers * (i + 1) / devices - problem.model->layers * i / devices});
  }
  const scheduler::ReplicaSpec replica = MakeReplica(layout, stages);
  const auto lengths = scheduler::MomentsOf(problem.samples);
  return CheckMemory(*problem.model, replica.stages, problem.options.memory,
                     lengths.max_sequence_tokens)
      .ok();
}

}  // namespace

void MakeCensusInstance(int seed, CensusInstance* instance, bool unlike_links) {
  Maker(seed, unlike_links, instance).Make();
}

PlacementTraits TraitsOf(const scheduler::PlacementProblem& problem,
                         const EnumeratedPlacement& best) {
  PlacementTraits traits;
  int used = 0;
  for (const EnumeratedReplica& replica : best.replicas) {
    for (const LayoutStage& stage : replica.stages) {
      used += stage.width;
      traits.asymmetric = traits.asymmetric || stage.width != replica.stages[0].width ||
                          stage.layers != replica.stages[0].layers;
    }
    traits.asymmetric = traits.asymmetric || !Alike(replica.stages, best.replicas[0].stages);
    traits.split = traits.split || replica.role != Role::kBoth;
  }
  traits.idle = used < problem.graph->devices();
  traits.even_misfits = !EvenFits(problem);
  return traits;
}

Verdict JudgeFound(const scheduler::Placement& found, const EnumeratedPlacement& best) {
  constexpr double kEqual = 1e-6, kProved = 5e-5;  // 0.00 % to a reader
  const double value = found.requests_per_second / best.requests_per_second;
  const double bound = found.upper_bound / best.requests_per_second;
  return {.optimal = std::abs(value - 1) < kEqual,
          .proved = bound >= 1 - 1e-9 && bound < 1 + kProved};
}

}  // namespace tessera::tests

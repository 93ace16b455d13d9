#include "tests/scheduler/search/layout_enumerator.h"

#include <cstdint>
#include <string>

#include "proto/cluster.pb.h"
#include "tests/scheduler/search/every_layout.h"

namespace tessera::tests {
namespace {

// Small and the same everywhere.
class Random {
 public:
  explicit Random(int seed) : state_(static_cast<uint64_t>(seed) * 2654435761u + 12345) {}
  double Uniform(double low, double high) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * static_cast<double>(state_ >> 11) / 9007199254740992.0;
  }
  int Int(int low, int high) { return static_cast<int>(Uniform(low, high + 1 - 1e-9)); }

 private:
  uint64_t state_;
};

void SetLink(double gigabytes, double latency, v1::Link* link) {
  link->set_bandwidth_bytes_per_second(gigabytes * 1e9);
  link->set_latency_seconds(latency);
}

}  // namespace

Enumerated EnumerateLayouts(const scheduler::LayoutProblem& problem) {
  Enumerated best;
  ForEveryLayout(problem, [&](const std::vector<scheduler::LayoutStage>& stages) {
    ++best.layouts;
    const double rate =
        CapacityOf(*problem.model, ReplicaOf(problem, stages), problem.lengths, problem.options)
            .requests_per_second;
    if (rate <= best.requests_per_second) return;
    best.requests_per_second = rate;
    best.stages = stages;
  });
  return best;
}

void MakeLayoutInstance(int seed, int max_devices, int max_layers, LayoutInstance* instance) {
  Random random(seed);
  scheduler::ModelShape& model = instance->model;
  model.name = "m";
  model.layers = random.Int(8, max_layers);
  model.hidden = model.embedding_width = 4096;
  model.kinds = {{.hidden = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .ffn_width = 14336}};
  model.vocabulary = 32000;

  v1::Cluster cluster;
  const int kinds = random.Int(2, 4), machines = random.Int(2, 3),
            devices = random.Int(4, max_devices);
  const double layer_gib = 0.41;
  for (int i = 0; i < kinds; ++i) {
    v1::DeviceKind* kind = cluster.add_kinds();
    kind->set_name("k" + std::to_string(i));
    // Between too small for an even share and room for the model.
    const double gib = layer_gib * model.layers / devices * random.Uniform(0.3, 2.5) + 1.4;
    kind->set_memory_bytes(static_cast<int64_t>(gib * 1073741824.0));
    kind->set_memory_bandwidth_bytes_per_second(random.Uniform(100e9, 2000e9));
    kind->set_dense_flops_per_second(random.Uniform(15e12, 400e12));
    kind->set_prefill_efficiency(0.6);
    kind->set_decode_efficiency(0.8);
    kind->set_layer_overhead_seconds(random.Uniform(10e-6, 200e-6));
  }
  for (int i = 0; i < machines; ++i) {
    v1::Machine* machine = cluster.add_machines();
    machine->set_name("m" + std::to_string(i));
    SetLink(random.Uniform(4, 100), random.Uniform(2e-6, 30e-6), machine->mutable_inside());
  }
  SetLink(random.Uniform(0.05, 2), random.Uniform(20e-6, 5e-3),
          cluster.mutable_tiers()->mutable_site());
  // Kinds are dealt to machines, then devices to the resulting pools.
  const int pools = std::max(kinds, machines);
  std::vector<v1::DeviceGroup*> groups;
  for (int i = 0; i < pools; ++i) {
    v1::DeviceGroup* group = cluster.mutable_machines(i % machines)->add_devices();
    group->set_kind("k" + std::to_string(i % kinds));
    group->set_count(1);
    groups.push_back(group);
  }
  for (int i = pools; i < devices; ++i) {
    v1::DeviceGroup* group = groups[static_cast<size_t>(random.Int(0, pools - 1))];
    group->set_count(group->count() + 1);
  }
  instance->graph = *scheduler::MakeClusterGraph(cluster, v1::DeviceCatalogue(), "instance");

  scheduler::LayoutProblem& problem = instance->problem;
  problem.model = &instance->model;
  problem.graph = &instance->graph;
  for (const auto& pool : instance->graph.pools())
    problem.pools.push_back({pool.spec, pool.machine, pool.count});
  const scheduler::RequestLengths lengths[] = {
      {random.Uniform(100, 2000), random.Uniform(20, 400), 1}};
  problem.lengths = scheduler::MomentsOf(lengths);
  problem.options.memory.runtime_reserve_bytes = 0.5 * 1073741824.0;
  problem.options.memory.max_step_tokens = 512;
  const double choice = random.Uniform(0, 1);
  problem.role = choice < 0.6
                     ? scheduler::Role::kBoth
                     : (choice < 0.8 ? scheduler::Role::kDecode : scheduler::Role::kPrefill);
  if (random.Uniform(0, 1) < 0.3) problem.options.max_tpot_seconds = random.Uniform(0.02, 0.1);
}

}  // namespace tessera::tests

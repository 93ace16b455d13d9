#include "scheduler/planner/written_layout.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "absl/strings/str_format.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/mixed_stages.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

struct DeviceAt {
  int pool = 0;   // of the graph
  int index = 0;  // within the pool
};

std::optional<int> WholeNumber(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

class Reader {
 public:
  Reader(const PlacementProblem& problem, const v1::WrittenLayout& layout, const std::string& file)
      : problem_(problem), layout_(layout), file_(file) {
    for (size_t p = 0; p < problem.graph->pools().size(); ++p) {
      const DevicePool& pool = problem.graph->pools()[p];
      for (int i = 0; i < pool.count; ++i)
        devices_[problem.graph->DeviceName(pool, i)] = {static_cast<int>(p), i};
    }
  }

  absl::StatusOr<Placement> Run() {
    if (layout_.replicas().empty()) return Error("replicas", "the layout has no replica");
    std::vector<PlacedReplica> replicas;
    for (int r = 0; r < layout_.replicas_size(); ++r) {
      absl::StatusOr<PlacedReplica> replica =
          ReadReplica(layout_.replicas(r), StrCat("replicas[", r, "]"));
      if (!replica.ok()) return replica.status();
      replicas.push_back(*std::move(replica));
    }
    absl::StatusOr<Placement> placement = Assemble(problem_, replicas);
    if (!placement.ok()) return placement.status();
    for (size_t r = 0; r < replicas.size(); ++r) {
      // Like devices are interchangeable to the planner, not to whoever named them.
      placement->replicas[r].device_index = replicas[r].device_index;
      if (absl::Status s = CheckRate(placement->replicas[r], StrCat("replicas[", r, "]")); !s.ok())
        return s;
    }
    if (placement->requests_per_second <= 0) {
      return Error("replicas", "prefill and decode replicas are needed to serve, or role both");
    }
    return placement;
  }

 private:
  absl::Status Error(std::string_view key, std::string_view reason) const {
    return absl::InvalidArgumentError(StrCat(file_, ": ", key, ": ", reason));
  }

  absl::Status CheckRate(const PlacedReplica& replica, const std::string& key) const {
    if (replica.rate.requests_per_second > 0) return absl::OkStatus();
    return Error(
        key, absl::StrFormat(
                 "it fits the memory but is too slow: TPOT is above %.1f ms even with one sequence",
                 problem_.options.max_tpot_seconds * 1e3));
  }

  // "a/0..3" or "a/2".
  absl::Status AddDevices(const std::string& text, const std::string& key,
                          std::vector<DeviceAt>* ranks) {
    const size_t slash = text.rfind('/');
    if (slash == std::string::npos)
      return Error(key, StrCat("\"", text, "\" names no device; write for example \"a/0..3\""));
    const std::string_view range = std::string_view(text).substr(slash + 1);
    const size_t dots = range.find("..");
    const std::optional<int> first = WholeNumber(range.substr(0, dots));
    const std::optional<int> last =
        dots == std::string_view::npos ? first : WholeNumber(range.substr(dots + 2));
    if (!first || !last || *last < *first)
      return Error(key, StrCat("\"", text, "\" is no range; write for example \"a/0..3\""));
    for (int i = *first; i <= *last; ++i) {
      const std::string name = StrCat(text.substr(0, slash), "/", i);
      const auto found = devices_.find(name);
      if (found == devices_.end()) return Error(key, StrCat("the cluster has no device ", name));
      if (const auto [user, fresh] = users_.emplace(name, key); !fresh)
        return Error(key, StrCat("device ", name, " is used by ", user->second, " already"));
      ranks->push_back(found->second);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<PlacedReplica> ReadReplica(const v1::WrittenReplica& written,
                                            const std::string& key) {
    PlacedReplica replica;
    if (written.role() == v1::REPLICA_ROLE_PREFILL) replica.role = Role::kPrefill;
    if (written.role() == v1::REPLICA_ROLE_DECODE) replica.role = Role::kDecode;
    int layers = 0;
    std::vector<std::vector<DeviceAt>> ranks;
    for (int j = 0; j < written.stages_size(); ++j) {
      const v1::WrittenStage& stage = written.stages(j);
      const std::string at = StrCat(key, ".stages[", j, "]");
      if (stage.layers() <= 0) return Error(at + ".layers", "must be at least 1");
      if (stage.devices().empty()) return Error(at + ".devices", "the stage has no device");
      layers += stage.layers();
      for (const std::string& devices : stage.devices()) {
        ranks.resize(static_cast<size_t>(j) + 1);
        if (absl::Status s = AddDevices(devices, at + ".devices", &ranks.back()); !s.ok()) return s;
      }
      const int width = static_cast<int>(ranks.back().size());
      if (absl::Status s = CheckFractions(stage, width, at + ".fractions"); !s.ok()) return s;
      if (width > MaxWidth(*problem_.model)) {
        return Error(at, StrCat(width, " devices cannot share the ", MaxWidth(*problem_.model),
                                " heads of ", problem_.model->name));
      }
    }
    if (layers != problem_.model->layers) {
      return Error(key + ".stages", StrCat("they hold ", layers, " layers, ", problem_.model->name,
                                           " has ", problem_.model->layers));
    }
    if (absl::Status s = CheckRoom(written, ranks, key); !s.ok()) return s;
    return Placed(std::move(replica), written, ranks);
  }

  absl::Status CheckFractions(const v1::WrittenStage& stage, int width,
                              const std::string& key) const {
    if (stage.fractions().empty()) return absl::OkStatus();
    if (stage.fractions_size() != width) {
      return Error(key, StrCat(stage.fractions_size(), " for ", width,
                               " devices; give one for each, in their order, or none"));
    }
    for (const double fraction : stage.fractions()) {
      if (!(fraction > 0) || !std::isfinite(fraction))
        return Error(key, "must be above 0, such as [0.64, 0.36]");
    }
    return absl::OkStatus();
  }

  // How a stage over unlike devices, or one that says it, is cut; empty: evenly.
  std::vector<double> FractionsOf(const v1::WrittenStage& stage,
                                  const std::vector<DeviceAt>& ranks) const {
    std::vector<double> fractions(stage.fractions().begin(), stage.fractions().end());
    const bool alike = std::all_of(ranks.begin(), ranks.end(), [&](const DeviceAt& device) {
      return device.pool == ranks.front().pool;
    });
    if (fractions.empty() && !alike) {
      std::vector<const DeviceSpec*> specs;
      for (const DeviceAt& device : ranks)
        specs.push_back(problem_.graph->pools()[static_cast<size_t>(device.pool)].spec);
      const auto cuts =
          MixedFractions(*problem_.model, specs, problem_.options.memory, 0,
                         static_cast<double>(stage.layers()) / problem_.model->layers);
      if (!cuts.empty()) return cuts.front();
      fractions.assign(ranks.size(), 1);  // too large however it is cut: says which devices lack
    }
    const double sum = std::accumulate(fractions.begin(), fractions.end(), 0.0);
    for (double& fraction : fractions) fraction /= sum;
    return fractions;
  }

  // Also for stages that the planner would not build: memory does not depend on links.
  absl::Status CheckRoom(const v1::WrittenReplica& written,
                         const std::vector<std::vector<DeviceAt>>& ranks,
                         const std::string& key) const {
    std::vector<StageSpec> stages;
    int layer = 0;
    for (size_t j = 0; j < ranks.size(); ++j) {
      StageSpec& stage = stages.emplace_back();
      for (const DeviceAt& device : ranks[j]) {
        const DevicePool& pool = problem_.graph->pools()[static_cast<size_t>(device.pool)];
        stage.ranks.push_back(pool.spec);
        stage.rank_names.push_back(problem_.graph->DeviceName(pool, device.index));
      }
      stage.first_layer = layer;
      stage.layers = written.stages(static_cast<int>(j)).layers();
      layer += stage.layers;
      stage.holds_embedding = j == 0;
      stage.holds_head = j + 1 == ranks.size();
      const std::vector<double> fractions =
          FractionsOf(written.stages(static_cast<int>(j)), ranks[j]);
      if (!fractions.empty()) stage.shares = SharesBy(*problem_.model, fractions);
    }
    const LengthMoments lengths = MomentsOf(problem_.samples);
    const absl::Status room =
        CheckMemory(*problem_.model, stages, problem_.options.memory, lengths.max_sequence_tokens);
    if (room.ok()) return room;
    return absl::Status(room.code(), StrCat(file_, ": ", key, ": ", StdView(room.message())));
  }

  PlacedReplica Placed(PlacedReplica replica, const v1::WrittenReplica& written,
                       const std::vector<std::vector<DeviceAt>>& ranks) const {
    for (size_t j = 0; j < ranks.size(); ++j) {
      std::vector<LayoutPart> parts;
      std::vector<int>& indices = replica.device_index.emplace_back();
      for (const DeviceAt& device : ranks[j]) {
        if (parts.empty() || parts.back().pool != device.pool) parts.push_back({device.pool, 0});
        ++parts.back().width;
        indices.push_back(device.index);
      }
      const v1::WrittenStage& given = written.stages(static_cast<int>(j));
      LayoutStage stage = {parts.front().pool, parts.front().width, given.layers()};
      std::vector<double> fractions = FractionsOf(given, ranks[j]);
      if (!fractions.empty()) {
        parts.erase(parts.begin());
        stage.mix =
            std::make_shared<const StageMix>(StageMix{std::move(parts), std::move(fractions)});
      }
      replica.stages.push_back(std::move(stage));
    }
    return replica;
  }

  const PlacementProblem& problem_;
  const v1::WrittenLayout& layout_;
  const std::string& file_;
  std::map<std::string, DeviceAt> devices_;
  std::map<std::string, std::string> users_;  // key of the stage, by device
};

}  // namespace

Search GivenLayout(v1::WrittenLayout layout, std::string file) {
  return [layout = std::move(layout), file = std::move(file)](const PlacementProblem& problem) {
    return Reader(problem, layout, file).Run();
  };
}

v1::WrittenLayout LayoutOf(const v1::DeploymentPlan& plan) {
  v1::WrittenLayout layout;
  for (const v1::Replica& replica : plan.replicas()) {
    v1::WrittenReplica* written = layout.add_replicas();
    written->set_role(replica.role());
    for (const v1::Stage& stage : replica.stages()) {
      v1::WrittenStage* out = written->add_stages();
      const v1::Range& layers = stage.workers(0).share().layers();
      out->set_layers(static_cast<int>(layers.end() - layers.begin()));
      for (const v1::PlannedWorker& worker : stage.workers()) {
        out->add_devices(worker.device());
        if (worker.fraction() > 0) out->add_fractions(worker.fraction());
      }
    }
  }
  return layout;
}

}  // namespace tessera::scheduler

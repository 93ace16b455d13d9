#include "worker/emulation/emulation.h"

#include <algorithm>
#include <utility>

#include "proto/emulated_kind.h"
#include "proto/layers/kv_shares.h"
#include "third_party/absl/str_cat.h"
#include "worker/emulation/emulated_model.h"
#include "worker/emulation/emulated_stage.h"

namespace tessera::worker {
namespace {

int StagesOf(const v1::ConfigureRequest& request) {
  int stages = 1;
  for (const v1::Peer& peer : request.peers()) stages = std::max(stages, peer.stage() + 1);
  return stages;
}

// Tokens that the coordinator has words for.
int64_t VocabularyOf(const v1::ConfigureRequest& request) {
  const int64_t all = request.model().vocabulary();
  return request.vocabulary_size() > 0 ? std::min<int64_t>(all, request.vocabulary_size()) : all;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Emulation>> Emulation::Open(const std::string& folder,
                                                           double speed) {
  std::unique_ptr<Emulation> emulation(new Emulation(folder, speed));
  if (folder.empty()) return emulation;
  auto plan = RehearsedPlan::Read(folder);
  if (!plan.ok()) return plan.status();
  emulation->plan_ = *std::move(plan);
  return emulation;
}

absl::StatusOr<int64_t> Emulation::MemoryOf(const std::string& kind,
                                            const std::string& name) const {
  const v1::PlannedWorker* worker = plan_ == nullptr ? nullptr : plan_->FindWorker(name);
  // One that the plan leaves idle may be of a kind that only the plan's cluster knows.
  if (worker == nullptr && plan_ != nullptr) return int64_t{1} << 30;
  if (worker == nullptr) return CatalogueMemory(kind);
  return std::max(worker->available_bytes(),
                  worker->weight_bytes() + worker->kv_bytes() + worker->activation_bytes());
}

void Emulation::Fill(const std::string& kind, const std::string& name, SetupOptions* setup) {
  const v1::PlannedWorker* worker = plan_ == nullptr ? nullptr : plan_->FindWorker(name);
  const int64_t weights = worker == nullptr ? 0 : worker->weight_bytes();
  const int64_t activations = worker == nullptr ? 0 : worker->activation_bytes();
  setup->kernel_path = "none: emulated";
  setup->load_model = [weights, activations](const ModelOptions& options, kernels::Device&,
                                             const std::function<void(int64_t, int64_t)>&) {
    return absl::StatusOr<std::unique_ptr<Model>>(MakeEmulatedModel(options, weights, activations));
  };
  setup->fingerprint = [](const std::filesystem::path&) {
    return absl::StatusOr<std::string>(std::string(kRehearsalFingerprint));
  };
  setup->make_stage = [this, kind](const v1::ConfigureRequest& request, const StageOptions& options,
                                   const StageLinks& links) {
    return MakeStage(kind, request, options, links);
  };
  if (!setup->open_kv_port) return;
  setup->open_kv_port = [open = setup->open_kv_port](const KvPortPools& pools, int self,
                                                     std::shared_ptr<const void> owner) {
    KvPortPools moved = pools;
    moved.kv.head_dim = std::min<int64_t>(moved.kv.head_dim, kMovedHeadDim);
    return open(moved, self, std::move(owner));
  };
}

std::function<void(const v1::KvPiece&)> Emulation::KvPaceOf(const std::string& name) {
  const double seconds = plan_ == nullptr ? 0 : plan_->KvSecondsOf(name) / speed_;
  if (seconds <= 0) return nullptr;
  return [this, seconds](const v1::KvPiece& piece) {
    const auto size = [](const v1::Range& range) {
      return static_cast<double>(range.end() - range.begin());
    };
    const double took = seconds * (piece.end_token() - piece.first_token()) * size(piece.layers()) *
                        size(piece.kv_heads());
    double end = 0;
    {
      std::lock_guard lock(mutex_);
      end = link_free_seconds_ = std::max(link_free_seconds_, SystemClock().NowSeconds()) + took;
    }
    SystemClock().SleepUntil(end);
  };
}

absl::StatusOr<std::unique_ptr<Stage>> Emulation::MakeStage(const std::string& kind,
                                                            const v1::ConfigureRequest& request,
                                                            const StageOptions& options,
                                                            const StageLinks& links) {
  const int stages = StagesOf(request);
  std::shared_ptr<const RehearsedPlan> plan = plan_;
  if (plan == nullptr) {
    auto alone = RehearsedPlan::OfOneDevice(kind, request);
    if (!alone.ok()) return alone.status();
    plan = *std::move(alone);
  }
  auto cost = plan->CostOf(request.replica(), stages);
  if (!cost.ok()) return cost.status();
  const v1::KvShare held = KvShareOf(request.model(), request.share());
  EmulatedStageOptions emulated;
  emulated.cost = *std::move(cost);
  emulated.stage = request.stage();
  emulated.is_first = request.rank() == 0;
  emulated.layers = static_cast<int>(held.layers().end() - held.layers().begin());
  emulated.vocabulary = VocabularyOf(request);
  emulated.embedding_width = request.model().embedding_width();
  emulated.speed = speed_;
  emulated.lateness = &lateness_;
  return std::make_unique<EmulatedStage>(std::move(emulated), options, links);
}

}  // namespace tessera::worker

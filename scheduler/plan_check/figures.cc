#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/activations.h"
#include "proto/layers/kv_sizes.h"
#include "proto/layers/layer_sizes.h"
#include "proto/layers/layers.h"
#include "scheduler/plan_check/parts.h"

namespace tessera::scheduler {
namespace {

constexpr double kGib = 0x1p30;
constexpr double kRounding = 1 + 1e-6;

// Not every range was checked: a subtraction of integers could overflow.
double Width(const v1::Range& range) {
  return static_cast<double>(range.end()) - static_cast<double>(range.begin());
}

double ElementBytes(v1::DataType type) {
  if (type == v1::DATA_TYPE_FLOAT32) return 4;
  return type == v1::DATA_TYPE_INT8 || type == v1::DATA_TYPE_FP8 ? 1 : 2;
}

// What a worker of the plan holds at least, whatever the plan says of it.
struct LeastBytes {
  double weights = 0, kv = 0, activations = 0;
};

LeastBytes LeastOf(const v1::DeploymentPlan& plan, const v1::PlannedWorker& worker,
                   double kv_tokens, double sequences) {
  const HeldByWorker held = HeldBy(plan, worker.share());
  // The largest step takes a row of the hidden width for each of its tokens.
  const double rows = std::max<double>(0, static_cast<double>(plan.basis().max_step_tokens()));
  // The window of one sequence at least.
  const double window = std::min(kv_tokens, static_cast<double>(LongestWindow(plan.model())));
  return {held.weight_bytes,
          kv_tokens * held.kv_bytes_per_token + window * held.window_bytes_per_token +
              sequences * held.state_bytes,
          rows * plan.model().hidden() * ActivationElementBytes()};
}

// Figures of 0 are as wrong as others where a plan has a basis: they were left out.
absl::Status CheckWorker(const std::string& where, const v1::DeploymentPlan& plan,
                         const v1::PlannedWorker& worker, const v1::Replica& replica) {
  const auto kv_tokens = static_cast<double>(replica.prediction().kv_capacity_tokens());
  const auto sequences = static_cast<double>(replica.max_sequences());
  const LeastBytes least = LeastOf(plan, worker, kv_tokens, sequences);
  const auto weights = static_cast<double>(worker.weight_bytes());
  if ((weights > 0 || plan.has_basis()) && weights + 1 < least.weights) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: device %s is said to hold %.3f GiB of weights, but its layers, heads and columns are "
        "%.3f GiB: %.3f GiB are missing",
        where, worker.device(), weights / kGib, least.weights / kGib,
        (least.weights - weights) / kGib));
  }
  const auto kv = static_cast<double>(worker.kv_bytes());
  if (kv + 1 < least.kv) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: device %s has %.3f GiB for KV, but %.0f tokens%s of its layers and heads are %.3f "
        "GiB: %.3f GiB are missing",
        where, worker.device(), kv / kGib, kv_tokens,
        KeepsStates(plan.model())         ? " and states"
        : LongestWindow(plan.model()) > 0 ? " and a window"
                                          : "",
        least.kv / kGib, (least.kv - kv) / kGib));
  }
  const auto activations = static_cast<double>(worker.activation_bytes());
  if (activations + 1 < least.activations) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: device %s has %.6f GiB for activations, but a step of %d rows of %d values is %.6f",
        where, worker.device(), activations / kGib, plan.basis().max_step_tokens(),
        plan.model().hidden(), least.activations / kGib));
  }
  const double needed =
      std::max(weights, least.weights) + kv + std::max(activations, least.activations);
  const auto available = static_cast<double>(worker.available_bytes());
  if (available == 0 && !plan.has_basis()) return absl::OkStatus();
  if (needed <= available + 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: device %s needs %.2f GiB for its layers, heads and columns, KV and activations, and "
      "offers %.2f GiB: %.2f GiB are missing",
      where, worker.device(), needed / kGib, available / kGib, (needed - available) / kGib));
}

// Weights of another type than the plan's are twice as large or more.
absl::Status CheckWeightType(const std::string& where, const v1::DeploymentPlan& plan,
                             const v1::Stage& stage) {
  constexpr double kUnevenRanks = 1.25;  // plans give every rank what the fullest holds
  double fullest = 0;
  for (const v1::PlannedWorker& worker : stage.workers())
    fullest = std::max(fullest, HeldBy(plan, worker.share()).weight_bytes);
  for (const v1::PlannedWorker& worker : stage.workers()) {
    const auto weights = static_cast<double>(worker.weight_bytes());
    if (weights <= kUnevenRanks * fullest + 1) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: device %s is said to hold %.3f GiB of weights, but with %g bytes each, as "
        "weight_dtype "
        "says, the fullest rank of the stage holds %.3f GiB",
        where, worker.device(), weights / kGib, WeightElementBytes(plan), fullest / kGib));
  }
  return absl::OkStatus();
}

struct Sent {
  double prefill = 0;  // shares of the traffic
  double decode = 0;
};

absl::Status CheckKvInFlight(const std::string& where, const v1::DeploymentPlan& plan,
                             const v1::Replica& replica, const Sent& sent) {
  const v1::PlanBasis& basis = plan.basis();
  const auto capacity = static_cast<double>(replica.prediction().kv_capacity_tokens());
  if (replica.role() == v1::REPLICA_ROLE_PREFILL) return absl::OkStatus();
  if (capacity < basis.longest_sequence_tokens()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s has KV for %.0f tokens; the longest sequence of the workload has %.0f",
                        where, capacity, basis.longest_sequence_tokens()));
  }
  const double rate = sent.decode * basis.requests_per_second();
  const double resident = std::max(0.0, basis.output_tokens() - 1) *
                          replica.prediction().time_per_output_token_seconds();
  const double in_use = rate * resident * basis.decode_context_tokens();
  const double usable = (1 - basis.kv_headroom()) * capacity;
  if (in_use <= usable * kRounding) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: %.3f requests/s that stay %.1f s and hold %.0f tokens each need KV for %.0f tokens; it "
      "has %.0f, of which %g are kept free",
      where, rate, resident, basis.decode_context_tokens(), in_use, capacity, basis.kv_headroom()));
}

absl::Status CheckLoad(const std::string& where, const v1::DeploymentPlan& plan,
                       const v1::Replica& replica, const Sent& sent) {
  const double can = replica.prediction().requests_per_second();
  const double gets = std::max(sent.prefill, sent.decode) * plan.prediction().requests_per_second();
  if (can <= 0 || gets <= can * kRounding) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is sent %.3f requests/s, but serves %.3f at most", where, gets, can));
}

// Bytes of an element of a layer's matrices: int4 has half a byte and a word for each group. Some
// may be of other types.
double MatrixElementBytes(const v1::DeploymentPlan& plan) {
  const v1::Quantization& quantization = plan.model().quantization();
  if (IsMixed(quantization)) {
    return quantization.code_bytes() + quantization.decoded_part() * WeightElementBytes(plan);
  }
  if (!KeepsInt4(plan.model())) return WeightElementBytes(plan);
  return Int4ElementBytes(Int4GroupInputs(quantization.group_size()));
}

}  // namespace

double WeightElementBytes(const v1::DeploymentPlan& plan) {
  return ElementBytes(plan.weight_dtype() == v1::DATA_TYPE_UNSPECIFIED ? plan.model().dtype()
                                                                       : plan.weight_dtype());
}

double ActivationElementBytes() { return kActivationElementBytes; }

double WireElementBytes(const v1::DeploymentPlan& plan) {
  // Without a reserve it is for CPU workers.
  if (plan.has_basis() && plan.basis().runtime_reserve_bytes() == 0) return kWireElementBytes;
  return std::max(2.0, WeightElementBytes(plan));
}

KvElement KvElementOf(const v1::DeploymentPlan& plan) {
  if (plan.kv_dtype() == v1::DATA_TYPE_UNSPECIFIED)
    return static_cast<int64_t>(std::max(2.0, WeightElementBytes(plan)));
  const auto bytes = static_cast<int64_t>(ElementBytes(plan.kv_dtype()));
  return bytes == 1 ? KvCodeElement() : KvElement(bytes);
}

namespace {

HeldByWorker HeldIn(const v1::DeploymentPlan& plan, const v1::WorkerShare& share,
                    const KvElement& element);

// Adds all of the model that drafts, its KV in the model's elements.
void AddDraftModel(const v1::DeploymentPlan& plan, const KvElement& element, HeldByWorker* sum) {
  v1::DeploymentPlan drafts;
  *drafts.mutable_model() = plan.model().draft_model().model();
  drafts.set_weight_dtype(DraftWeightType(drafts.model(), plan.weight_dtype()));
  const HeldByWorker own = HeldIn(drafts, WholeModelShare(drafts.model()), element);
  sum->weight_bytes += own.weight_bytes;
  sum->kv_bytes_per_token += own.kv_bytes_per_token + own.window_bytes_per_token;
}

HeldByWorker HeldIn(const v1::DeploymentPlan& plan, const v1::WorkerShare& share,
                    const KvElement& element) {
  const v1::Model& model = plan.model();
  double held = 0, used = 0;           // of the layers' matrices
  double tables = 0, used_tables = 0;  // and of all else
  double kv_bytes = 0;                 // of a token
  double window_bytes = 0;             // the same in layers with a window
  double state_elements = 0;           // of a sequence
  for (int64_t layer = share.layers().begin(); layer < share.layers().end(); ++layer) {
    const LayerShape shape = ShapeOf(model, KindOf(model, layer));
    const LayerPart part = PartOf(ShareOf(model, share, layer));
    held += MatrixParameters(shape, part);
    used += MatrixParametersUsed(shape, part);
    tables += RouterParameters(shape);
    used_tables += RouterParameters(shape);
    const auto bytes = static_cast<double>(KvBytesPerToken(shape, part, element));
    const bool apart = KindOf(model, layer).attention().window() > 0 &&
                       LongestWindow(model) < model.max_positions();
    (apart ? window_bytes : kv_bytes) += bytes;
    state_elements += static_cast<double>(StateElements(shape, part));
  }
  const double table = VocabularyParameters(model, Width(share.vocabulary_rows()));
  if (HoldsDraftHead(model, share)) {
    const v1::LayerKind& kind = model.kinds(model.draft_head().kind());
    const LayerShape shape = ShapeOf(model, kind);
    const LayerPart part = PartOf(share.kinds(model.draft_head().kind()));
    held += MatrixParameters(shape, part);
    kv_bytes += static_cast<double>(KvBytesPerToken(shape, part, element));
    tables += RouterParameters(shape) + 2.0 * model.hidden() * model.hidden();
    if (!share.holds_embedding() && !model.tied_embeddings()) tables += table;
  }
  if (share.holds_head()) used_tables += table;
  const bool one_table = model.tied_embeddings() && share.holds_head() && share.holds_embedding();
  tables +=
      table * ((share.holds_embedding() ? 1 : 0) + (share.holds_head() && !one_table ? 1 : 0));
  if (share.holds_embedding()) {
    tables += static_cast<double>(LearnedPositions(model)) * model.hidden();
    tables += static_cast<double>(PerLayerColumns(model)) * Width(share.vocabulary_rows());
    tables += static_cast<double>(PerLayerParameters(model));
    used_tables += static_cast<double>(PerLayerParameters(model));
  }
  HeldByWorker sum;
  const double matrix_bytes = MatrixElementBytes(plan), table_bytes = WeightElementBytes(plan);
  sum.weight_bytes = held * matrix_bytes + tables * table_bytes;
  sum.parameters_per_token = used + used_tables;
  sum.bytes_read_per_token = used * matrix_bytes + used_tables * table_bytes;
  sum.kv_bytes_per_token = kv_bytes;
  sum.window_bytes_per_token = window_bytes;
  sum.state_bytes = state_elements * kStateElementBytes;
  if (HoldsDraftModel(model, share)) AddDraftModel(plan, element, &sum);
  return sum;
}

}  // namespace

HeldByWorker HeldBy(const v1::DeploymentPlan& plan, const v1::WorkerShare& share) {
  return HeldIn(plan, share, KvElementOf(plan));
}

absl::Status CheckFigures(const v1::DeploymentPlan& plan) {
  std::map<std::string, Sent> sent;
  for (const v1::RoutingShare& share : plan.routing()) {
    sent[share.prefill_replica()].prefill += share.share();
    sent[share.decode_replica()].decode += share.share();
  }
  for (const v1::Replica& replica : plan.replicas()) {
    const std::string where = absl::StrCat("replica ", replica.name());
    for (int j = 0; j < replica.stages_size(); ++j) {
      for (const v1::PlannedWorker& worker : replica.stages(j).workers()) {
        const std::string at = absl::StrCat(where, ", stage ", j);
        if (absl::Status s = CheckWorker(at, plan, worker, replica); !s.ok()) return s;
      }
      if (!plan.has_basis()) continue;
      absl::Status s = CheckWeightType(absl::StrCat(where, ", stage ", j), plan, replica.stages(j));
      if (!s.ok()) return s;
    }
    if (absl::Status s = CheckLoad(where, plan, replica, sent[replica.name()]); !s.ok()) return s;
    if (!plan.has_basis()) continue;
    if (plan.basis().max_step_tokens() > 0 &&
        replica.max_batched_tokens() > plan.basis().max_step_tokens()) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": max_batched_tokens is ", replica.max_batched_tokens(),
          ", but buffers were sized for steps of ", plan.basis().max_step_tokens(), " rows"));
    }
    if (absl::Status s = CheckKvInFlight(where, plan, replica, sent[replica.name()]); !s.ok())
      return s;
  }
  return absl::OkStatus();
}

}  // namespace tessera::scheduler

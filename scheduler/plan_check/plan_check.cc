#include "scheduler/plan_check/plan_check.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/layers/layer_sizes.h"
#include "proto/layers/layers.h"
#include "scheduler/plan_check/parts.h"

namespace tessera::scheduler {
namespace {

using Bounds = std::pair<int64_t, int64_t>;

Bounds Of(const v1::Range& range) { return {range.begin(), range.end()}; }

std::string Show(Bounds b) { return absl::StrFormat("[%d, %d)", b.first, b.second); }

// Whether `parts`, none of them empty where there is anything to hold, cover [0, end) exactly once,
// in any order.
absl::Status CoversOnce(std::string what, std::vector<Bounds> parts, int64_t end) {
  std::sort(parts.begin(), parts.end());
  int64_t reached = 0;
  for (const Bounds& part : parts) {
    if (part.first > part.second || part.first < 0 || part.second > end) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": range ", Show(part), " is not within ", Show({0, end})));
    }
    if (part.first == part.second && end == 0) continue;
    if (part.first == part.second) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": one of ", parts.size(), " workers holds none of ", end));
    }
    if (part.first != reached) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": ", part.first > reached ? "no worker holds " : "two workers hold ",
                       Show({std::min(reached, part.first), std::max(reached, part.first)})));
    }
    reached = part.second;
  }
  if (reached == end) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": no worker holds ", Show({reached, end})));
}

absl::Status CheckKvHeads(const std::string& where, const v1::Attention& attention,
                          const v1::LayerShare& share) {
  const auto [first, end] = Of(share.query_heads());
  const auto [kv_first, kv_end] = Of(share.kv_heads());
  if (kv_first < 0 || kv_end > attention.kv_heads() || kv_first > kv_end) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": kv heads ", Show({kv_first, kv_end}),
                                                   " are not within ",
                                                   Show({0, attention.kv_heads()})));
  }
  if (first >= end) return absl::OkStatus();
  const int64_t group = attention.heads() / attention.kv_heads();
  const Bounds needed = {first / group, (end - 1) / group + 1};
  if (needed.first >= kv_first && needed.second <= kv_end) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(where, ": its query heads ", Show({first, end}),
                                                 " read kv heads ", Show(needed), ", it holds ",
                                                 Show({kv_first, kv_end})));
}

absl::Status CheckMemory(const std::string& where, const v1::PlannedWorker& worker) {
  for (const int64_t bytes : {worker.weight_bytes(), worker.kv_bytes(), worker.activation_bytes(),
                              worker.available_bytes()}) {
    if (bytes >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": device ", worker.device(), " has ", bytes, " bytes of something"));
  }
  // As doubles, which no figures of a file can overflow.
  const double needed = static_cast<double>(worker.weight_bytes()) +
                        static_cast<double>(worker.kv_bytes()) +
                        static_cast<double>(worker.activation_bytes());
  const auto available = static_cast<double>(worker.available_bytes());
  if (available == 0 || needed <= available) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: device %s needs %.2f GiB (weights %.2f, KV %.2f, activations %.2f) and offers %.2f GiB: "
      "%.2f GiB are missing",
      where, worker.device(), needed / 0x1p30, worker.weight_bytes() / 0x1p30,
      worker.kv_bytes() / 0x1p30, worker.activation_bytes() / 0x1p30, available / 0x1p30,
      (needed - available) / 0x1p30));
}

// What the checks below divide by and count up to.
absl::Status CheckModel(const v1::Model& model) {
  if (absl::Status layers = CheckLayers(model); !layers.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("the plan's ", std::string(layers.message())));
  }
  if (model.vocabulary() >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError("the plan's model has a negative vocabulary");
}

// Every head, column and expert of the kind on one rank, kv heads perhaps on several.
absl::Status CheckKind(const std::string& where, const v1::LayerKind& kind, int index,
                       const v1::Stage& stage) {
  std::vector<Bounds> heads, groups, columns, experts;
  for (const v1::PlannedWorker& worker : stage.workers()) {
    const v1::LayerShare& share = worker.share().kinds(index);
    const std::string at = absl::StrCat(where, ", device ", worker.device());
    if (!kind.has_delta()) {
      if (absl::Status s = CheckKvHeads(at, kind.attention(), share); !s.ok()) return s;
    }
    groups.push_back(Of(share.key_groups()));
    heads.push_back(Of(share.query_heads()));
    columns.push_back(Of(share.ffn_columns()));
    experts.push_back(Of(share.experts()));
  }
  absl::Status status = CoversOnce(where + ", query heads", heads, kind.attention().heads());
  status.Update(CoversOnce(where + ", key groups", groups, kind.delta().key_heads()));
  status.Update(CoversOnce(where + ", ffn columns", columns, kind.ffn().width()));
  status.Update(CoversOnce(where + ", experts", experts, kind.ffn().experts().count()));
  return status;
}

absl::Status CheckStage(const std::string& where, const v1::Model& model, const v1::Stage& stage,
                        bool first, bool last) {
  if (stage.workers().empty())
    return absl::InvalidArgumentError(absl::StrCat(where, " has no worker"));
  std::vector<Bounds> rows;
  for (const v1::PlannedWorker& worker : stage.workers()) {
    const v1::WorkerShare& share = worker.share();
    const std::string at = absl::StrCat(where, ", device ", worker.device());
    if (Of(share.layers()) != Of(stage.workers(0).share().layers())) {
      return absl::InvalidArgumentError(absl::StrCat(at, ": layers ", Show(Of(share.layers())),
                                                     " differ from rank 0's ",
                                                     Show(Of(stage.workers(0).share().layers()))));
    }
    if (share.holds_embedding() != first || share.holds_head() != last) {
      return absl::InvalidArgumentError(absl::StrCat(
          at,
          ": the embedding belongs to the first stage and the head to the last, and to no other"));
    }
    if (share.kinds_size() != model.kinds_size()) {
      return absl::InvalidArgumentError(absl::StrCat(at, ": its share names ", share.kinds_size(),
                                                     " kinds of layers; the model has ",
                                                     model.kinds_size()));
    }
    if (absl::Status s = CheckMemory(where, worker); !s.ok()) return s;
    rows.push_back(Of(share.vocabulary_rows()));
  }
  for (int kind = 0; kind < model.kinds_size(); ++kind) {
    const std::string of =
        model.kinds_size() == 1 ? where : absl::StrCat(where, ", layers of kind ", kind);
    if (absl::Status s = CheckKind(of, model.kinds(kind), kind, stage); !s.ok()) return s;
  }
  if (!first && !last) return absl::OkStatus();
  return CoversOnce(where + ", vocabulary rows", rows, model.vocabulary());
}

// As many rows and sequences as a worker takes in one step.
constexpr int64_t kMaxStepRows = 1 << 20;
constexpr int64_t kMaxSequences = 65536;

// KV travels between replicas that only prefill and that only decode.
absl::Status CheckRole(const std::string& where, const v1::Model& model, v1::ReplicaRole role) {
  if (role == v1::REPLICA_ROLE_UNSPECIFIED) {
    return absl::InvalidArgumentError(absl::StrCat(where, " has no role: both, prefill or decode"));
  }
  if (role == v1::REPLICA_ROLE_BOTH) return absl::OkStatus();
  const absl::Status one_shape = CheckOneKvShape(model);
  if (one_shape.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(where, " cannot hand KV over, or take it: ", std::string(one_shape.message()),
                   "; give it the role both"));
}

absl::Status CheckReplica(const v1::Model& model, const v1::Replica& replica,
                          std::map<std::string, std::string>& device_user) {
  const std::string where = absl::StrCat("replica ", replica.name());
  if (absl::Status role = CheckRole(where, model, replica.role()); !role.ok()) return role;
  if (replica.stages().empty())
    return absl::InvalidArgumentError(absl::StrCat(where, " has no stage"));
  if (replica.max_sequences() < 0 || replica.max_sequences() > kMaxSequences) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": max_sequences is ", replica.max_sequences(),
                     "; it must be between 0 (left to the workers) and ", kMaxSequences));
  }
  if (replica.max_batched_tokens() < 0 || replica.max_batched_tokens() > kMaxStepRows) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": max_batched_tokens is ", replica.max_batched_tokens(),
                     "; it must be between 0 (left to the workers) and ", kMaxStepRows));
  }
  if (NeedsOneStage(model) && replica.stages_size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, " has ", replica.stages_size(),
                     " stages; a model whose layers borrow keys and values, or have embeddings of "
                     "their own, must be on one"));
  }
  int64_t reached = 0;
  for (int i = 0; i < replica.stages_size(); ++i) {
    const v1::Stage& stage = replica.stages(i);
    const std::string at = absl::StrCat(where, ", stage ", i);
    absl::Status checked = CheckStage(at, model, stage, i == 0, i + 1 == replica.stages_size());
    if (!checked.ok()) return checked;
    const Bounds layers = Of(stage.workers(0).share().layers());
    if (layers.first != reached || layers.second <= layers.first) {
      return absl::InvalidArgumentError(
          absl::StrCat(at, ": layers ", Show(layers), " do not follow layer ", reached));
    }
    reached = layers.second;
    for (const v1::PlannedWorker& worker : stage.workers()) {
      auto [user, fresh] = device_user.emplace(worker.device(), replica.name());
      if (!fresh) {
        return absl::InvalidArgumentError(absl::StrCat("device ", worker.device(),
                                                       " is used twice: by replica ", user->second,
                                                       " and by replica ", replica.name()));
      }
    }
  }
  if (reached == LayerCount(model)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": its stages end at layer ", reached, " of ", LayerCount(model)));
}

absl::Status CheckRouting(const v1::DeploymentPlan& plan,
                          const std::map<std::string, v1::ReplicaRole>& roles) {
  double sum = 0;
  for (const v1::RoutingShare& share : plan.routing()) {
    const auto prefill = roles.find(share.prefill_replica());
    const auto decode = roles.find(share.decode_replica());
    if (prefill == roles.end() || decode == roles.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("routing names replica ",
                       prefill == roles.end() ? share.prefill_replica() : share.decode_replica(),
                       ", which the plan has not"));
    }
    if (prefill->second == v1::REPLICA_ROLE_DECODE || decode->second == v1::REPLICA_ROLE_PREFILL) {
      return absl::InvalidArgumentError(absl::StrCat("routing sends prompts from ", prefill->first,
                                                     " to ", decode->first,
                                                     ", against their roles"));
    }
    const std::string& codec = share.kv_codec();
    if (!codec.empty() && codec != "raw" && codec != "int8" && codec != "int4") {
      return absl::InvalidArgumentError(absl::StrCat("routing from ", prefill->first, " to ",
                                                     decode->first, ": kv_codec is \"", codec,
                                                     "\", which is none of raw, int8, int4"));
    }
    if (!(share.share() >= 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("routing share of ", prefill->first, " is negative"));
    }
    sum += share.share();
  }
  if (sum <= 1.0 + 1e-6) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("routing shares sum to %g; at most 1 can be served", sum));
}

}  // namespace

absl::Status CheckPlan(const v1::DeploymentPlan& plan) {
  if (absl::Status s = CheckModel(plan.model()); !s.ok()) return s;
  if (plan.replicas().empty()) return absl::InvalidArgumentError("the plan has no replica");
  std::map<std::string, std::string> device_user;
  std::map<std::string, v1::ReplicaRole> roles;
  for (const v1::Replica& replica : plan.replicas()) {
    if (!roles.emplace(replica.name(), replica.role()).second) {
      return absl::InvalidArgumentError(absl::StrCat("two replicas are named ", replica.name()));
    }
    if (absl::Status s = CheckReplica(plan.model(), replica, device_user); !s.ok()) return s;
  }
  if (absl::Status s = CheckRouting(plan, roles); !s.ok()) return s;
  if (absl::Status s = CheckPromises(plan); !s.ok()) return s;
  if (absl::Status s = CheckFigures(plan); !s.ok()) return s;
  if (absl::Status s = CheckAttainment(plan, {}); !s.ok()) return s;
  if (absl::Status s = CheckSteadyState(plan); !s.ok()) return s;
  return CheckSurvival(plan);
}

absl::Status CheckPlanIsFor(const v1::DeploymentPlan& plan, const v1::Model& model) {
  const v1::Model& planned = plan.model();
  const auto differs = [&](const std::string& name, int64_t in_plan, int64_t given) {
    return absl::InvalidArgumentError(absl::StrCat("the plan is for a model with ", name, " = ",
                                                   in_plan, ", ", model.name(), " has ", given));
  };
  const struct {
    const char* name;
    int64_t planned, given;
  } fields[] = {{"layers", LayerCount(planned), LayerCount(model)},
                {"hidden", planned.hidden(), model.hidden()},
                {"vocabulary", planned.vocabulary(), model.vocabulary()},
                {"tied_embeddings", planned.tied_embeddings(), model.tied_embeddings()},
                {"int4 weights in groups of", planned.quantization().group_size(),
                 model.quantization().group_size()}};
  for (const auto& field : fields) {
    if (field.planned != field.given) return differs(field.name, field.planned, field.given);
  }
  for (int64_t layer = 0; layer < LayerCount(model); ++layer) {
    const LayerShape a = ShapeOf(planned, KindOf(planned, layer));
    const LayerShape b = ShapeOf(model, KindOf(model, layer));
    const struct {
      const char* name;
      int64_t planned, given;
    } sizes[] = {
        {"heads", a.heads, b.heads},
        {"kv_heads", a.kv_heads, b.kv_heads},
        {"head_dim", a.head_dim, b.head_dim},
        {"latent.rank", a.latent_rank, b.latent_rank},
        {"latent.query_rank", a.latent_columns - a.head_dim, b.latent_columns - b.head_dim},
        {"latent.plain_dim", a.plain_dim, b.plain_dim},
        {"latent.value_dim", a.value_dim, b.value_dim},
        {"ffn.width", a.ffn_width, b.ffn_width},
        {"matrices in an ffn", a.ffn_matrices, b.ffn_matrices},
        {"experts.count", a.experts, b.experts},
        {"experts.width", a.expert_width, b.expert_width}};
    for (const auto& size : sizes) {
      if (size.planned == size.given) continue;
      return differs(absl::StrCat("layers[", layer, "].", size.name), size.planned, size.given);
    }
  }
  return absl::OkStatus();
}

std::string ShortKvWarning(const v1::DeploymentPlan& plan, int64_t longest_request_tokens) {
  int64_t least = longest_request_tokens;
  std::string name;
  for (const v1::Replica& replica : plan.replicas()) {
    const int64_t tokens = replica.prediction().kv_capacity_tokens();
    if (replica.role() == v1::REPLICA_ROLE_PREFILL || tokens <= 0 || tokens >= least) continue;
    least = tokens;
    name = replica.name();
  }
  if (name.empty()) return "";
  return absl::StrCat("replica ", name, " decodes with KV for ", least,
                      " tokens, a request may be ", longest_request_tokens,
                      " long: such requests are not handed over to it, or "
                      "end when it is full; --max-model-len ",
                      least, " refuses them, or plan again with --context ",
                      longest_request_tokens);
}

}  // namespace tessera::scheduler

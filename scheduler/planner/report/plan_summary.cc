#include "scheduler/planner/report/plan_summary.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_format.h"
#include "scheduler/input/runtime_reserve.h"
#include "scheduler/planner/report/assumption_text.h"
#include "scheduler/planner/report/choice_text.h"
#include "scheduler/planner/report/note_text.h"
#include "scheduler/planner/report/plan_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr size_t kMaxReplicas = 40;  // that are shown: of clusters of thousands nobody reads more
constexpr double kAlike = 5e-4;
constexpr char kSure[] = "how sure:";
constexpr double kWidePercent = 10;  // of a bound: it says little about the plan

using Lines = std::vector<std::string>;

// Wrapped at blanks; what follows the first line is set in. Nothing is left out, and no word is
// broken: paths and commands are copied.
void Wrap(const std::string& text, const std::string& indent, Lines* lines) {
  std::string rest = text, begin = indent;
  while (!rest.empty()) {
    const size_t room = kSummaryColumns - begin.size();
    size_t cut = rest.size() <= room ? rest.size() : rest.rfind(' ', room);
    if (cut == std::string::npos || cut == 0) cut = std::min(rest.find(' ', room), rest.size());
    lines->push_back(begin + rest.substr(0, cut));
    rest.erase(0, std::min(rest.find_first_not_of(' ', cut), rest.size()));
    begin = indent + "  ";
  }
}

std::string CountText(size_t count, const std::string& thing) {
  return StrCat(count, " ", thing, count == 1 ? "" : "s");
}

// "a/0..3 (A6000, TP 4, layers 0-47)", for like stages after each other in one.
std::string StagesText(const v1::Replica& replica) {
  std::string text;
  for (int j = 0; j < replica.stages_size();) {
    const v1::Stage& first = replica.stages(j);
    if (IsMixed(first)) {
      const v1::Range& layers = first.workers(0).share().layers();
      text += StrCat(text.empty() ? "" : ", then ", MixedStageText(first), " (TP ",
                     first.workers_size());
      if (replica.stages_size() > 1)
        text += StrCat(", layers ", layers.begin(), "-", layers.end() - 1);
      text += ")";
      ++j;
      continue;
    }
    const int width = first.workers_size();
    const std::string& kind = first.workers(0).kind();
    v1::Replica run;
    int64_t end = 0;
    for (; j < replica.stages_size() && replica.stages(j).workers_size() == width &&
           replica.stages(j).workers(0).kind() == kind && !IsMixed(replica.stages(j));
         ++j) {
      *run.add_stages() = replica.stages(j);
      end = replica.stages(j).workers(0).share().layers().end();
    }
    if (!text.empty()) text += ", then ";
    text += StrCat(ReplicaDevicesText(run), " (", kind);
    if (width > 1) text += StrCat(", TP ", width);
    if (replica.stages_size() > 1) {
      text += StrCat(", layers ", first.workers(0).share().layers().begin(), "-", end - 1);
      if (run.stages_size() > 1) text += StrCat(" in ", run.stages_size(), " stages");
    }
    text += ")";
  }
  return text;
}

std::string MachineOf(const v1::PlannedWorker& worker) {
  return worker.device().substr(0, worker.device().rfind('/'));
}

// Whether both are one stage of as many devices of one kind in one machine.
bool Alike(const v1::Replica& a, const v1::Replica& b) {
  const auto one_machine = [](const v1::Replica& replica) {
    return replica.stages_size() == 1 &&
           std::all_of(replica.stages(0).workers().begin(), replica.stages(0).workers().end(),
                       [&](const v1::PlannedWorker& worker) {
                         return MachineOf(worker) == MachineOf(replica.stages(0).workers(0));
                       });
  };
  if (!one_machine(a) || !one_machine(b) || a.role() != b.role()) return false;
  const v1::Stage &one = a.stages(0), &other = b.stages(0);
  if (IsMixed(one) || IsMixed(other)) return false;
  return one.workers_size() == other.workers_size() &&
         one.workers(0).kind() == other.workers(0).kind() &&
         MachineOf(one.workers(0)) == MachineOf(other.workers(0));
}

// "r0..r3: a/0 | a/1 | a/2 | a/3 (L4)", a line for alike replicas of a machine.
std::string AlikeText(const v1::DeploymentPlan& plan, int begin, int end) {
  const v1::Replica& first = plan.replicas(begin);
  std::string text = first.name();
  if (end > begin + 1) {
    text += StrCat(end == begin + 2 ? ", " : "..", plan.replicas(end - 1).name());
  }
  text += ": ";
  if (first.role() != v1::REPLICA_ROLE_BOTH) text += StrCat(RoleText(first.role()), " on ");
  if (end == begin + 1) return text + StagesText(first);
  for (int i = begin; i < end; ++i)
    text += StrCat(i == begin ? "" : " | ", ReplicaDevicesText(plan.replicas(i)));
  const v1::Stage& stage = first.stages(0);
  text += StrCat(" (", stage.workers(0).kind());
  if (stage.workers_size() > 1) text += StrCat(", TP ", stage.workers_size(), " each");
  return text + ")";
}

void AddReplicas(const v1::DeploymentPlan& plan, Lines* lines) {
  constexpr size_t kIndent = 2;
  size_t shown = 0;
  for (int i = 0; i < plan.replicas_size() && shown < kMaxReplicas; ++shown) {
    int end = i + 1;
    while (end < plan.replicas_size() && Alike(plan.replicas(i), plan.replicas(end)) &&
           AlikeText(plan, i, end + 1).size() + kIndent <= kSummaryColumns)
      ++end;
    Wrap(AlikeText(plan, i, end), "  ", lines);
    i = end;
    if (shown + 1 == kMaxReplicas && i < plan.replicas_size())
      lines->back() += StrCat(" and ", plan.replicas_size() - i, " more");
  }
}

std::string AfterLossText(const v1::DeploymentPlan& plan) {
  if (!plan.has_survival()) return "";
  return absl::StrFormat(", %.3f after the loss of any one machine",
                         plan.survival().requests_per_second());
}

std::string PriceText(const v1::DeploymentPlan& plan) {
  const v1::Prediction& p = plan.prediction();
  if (p.usd_per_million_output_tokens() <= 0) return "";
  const double per_hour =
      p.usd_per_million_output_tokens() * p.output_tokens_per_second() * 3600 / 1e6;
  return absl::StrFormat("%s USD/h, %s USD per million output tokens when fully used%s",
                         UsdText(per_hour), UsdText(p.usd_per_million_output_tokens()),
                         PricesEstimated(plan) ? " (prices are estimates)" : "");
}

std::string BoundText(const v1::DeploymentPlan& plan) {
  const v1::Certificate& c = plan.certificate();
  if (c.proved() || (c.upper_bound() > 0 && c.gap() < kAlike)) {
    if (c.objective() == v1::OBJECTIVE_PRICE || c.objective() == v1::OBJECTIVE_GOODPUT)
      return "no plan of this kind is better: proved, for the cost model's figures";
    return StrCat("no plan of this kind serves more",
                  c.max_tpot_seconds() > 0
                      ? absl::StrFormat(" with TPOT <= %.0f ms", c.max_tpot_seconds() * 1e3)
                      : std::string(),
                  ": proved, for the cost model's figures");
  }
  if (c.upper_bound() <= 0) return "not proved to be the best: no bound is known";
  const double higher = 100 * (c.upper_bound() / c.value() - 1);
  return absl::StrFormat("not proved to be the best: the bound%s is %.1f %% higher",
                         higher > kWidePercent ? ", which ignores most of the links' cost," : "",
                         higher);
}

// The first half of the first note of such a fact; empty: there is none.
std::string Noted(const v1::DeploymentPlan& plan, v1::Note::FactCase fact) {
  for (const v1::Note& note : plan.notes()) {
    if (note.fact_case() != fact) continue;
    const std::string line = NoteText(note, plan);
    return line.substr(0, line.find("; "));
  }
  return "";
}

// Lines of how sure the rest is, and what it cost, most important ones first.
Lines SureLines(const v1::DeploymentPlan& plan) {
  Lines texts = {Noted(plan, v1::Note::kMixedStage),
                 Noted(plan, v1::Note::kUnmeasuredPipelines),
                 BoundText(plan),
                 Noted(plan, v1::Note::kLimitsCost),
                 Noted(plan, v1::Note::kSimplicityCost),
                 Noted(plan, v1::Note::kLostMachine),
                 EstimatesText(plan),
                 Noted(plan, v1::Note::kSequenceLimit),
                 Noted(plan, v1::Note::kEightBitKv)};
  std::erase(texts, "");
  return texts;
}

// As many as there is room for, at least one, each as a whole; where it is short, the first beside
// the heading.
void AddSure(const Lines& texts, size_t room, Lines* lines) {
  const bool beside = texts.size() >= room;
  if (!beside) lines->emplace_back(kSure);
  size_t used = 1;
  for (size_t i = 0; i < texts.size(); ++i) {
    Lines whole;
    const bool first = i == 0 && beside;
    Wrap(texts[i], first ? StrCat(kSure, " ") : "  ", &whole);
    if (i > 0 && used + whole.size() > room) break;
    used += whole.size();
    lines->insert(lines->end(), whole.begin(), whole.end());
  }
}

void AddNext(const v1::DeploymentPlan& plan, const SummaryCommands& commands, Lines* lines) {
  std::set<std::string> machines;
  bool cpus = false, gpus = false;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) {
        machines.insert(MachineOf(worker));
        (IsCpuKind(worker.kind()) ? cpus : gpus) = true;
      }
    }
  }
  const std::string file = commands.plan_file.empty() ? "plan.json" : commands.plan_file;
  const std::string first =
      commands.plan_file.empty() ? "next: the same with --out plan.json, then " : "next: ";
  if (machines.size() == 1) {
    Wrap(StrCat(first, "tessera up ", commands.weights, " --plan ", file), "", lines);
  } else {
    Wrap(StrCat(first, "tessera-coordinator ", commands.weights, " --plan ", file,
                " --host HOST --cluster-token-file TOKEN (the same secret on every machine), and"),
         "", lines);
    Wrap(StrCat("on machine M, per device M/N: tessera-worker --coordinator HOST:8001 --listen M:0 "
                "--cluster-token-file TOKEN --name M/N",
                gpus && cpus ? ", for a GPU also" : "", gpus ? " --device cuda:N" : ""),
         "  ", lines);
  }
  Wrap("--explain shows the rest: memory, routing, links, other choices, every assumption", "",
       lines);
  if (!commands.picture.empty()) Wrap(StrCat("drawn in ", commands.picture), "", lines);
}

}  // namespace

std::string PlanSummary(const v1::DeploymentPlan& plan, const SummaryCommands& commands) {
  size_t devices = 0;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages())
      devices += static_cast<size_t>(stage.workers_size());
  }
  Lines warned = {MissedLine(plan), CutText(plan)}, warnings, head, where, rest, next;
  std::erase(warned, "");
  constexpr size_t kMaxWarnings = 3;
  for (const std::string& line : NoteLines(plan)) {
    if (IsWarning(line) && line != MissedLine(plan) && warned.size() < kMaxWarnings)
      warned.push_back(line);
  }
  for (const std::string& line : warned) Wrap(line, "", &warnings);
  Wrap(StrCat(plan.model().name(), " on ", CountText(devices, "device"), ", ",
              CountText(static_cast<size_t>(plan.replicas_size()), "replica"), ": ",
              HeadlineRate(plan), HeadlineTokens(plan), AfterLossText(plan)),
       "", &head);
  where.push_back(
      "what runs where (TP: tensor parallel, devices share every layer; stages: pipeline "
      "parallel):");
  AddReplicas(plan, &where);
  Wrap(Noted(plan, v1::Note::kIdle), "  ", &where);
  rest.push_back("what to expect:");
  Wrap(LatencyText(plan), "  ", &rest);
  Wrap(PriceText(plan), "  ", &rest);
  AddNext(plan, commands, &next);
  const size_t all = static_cast<size_t>(kSummaryLines + plan.replicas_size());
  const size_t used = warnings.size() + head.size() + where.size() + rest.size() + next.size();
  AddSure(SureLines(plan), std::max<size_t>(1, all - std::min(all, used)), &rest);
  std::string out;
  for (const Lines& part : {warnings, head, where, rest, next, PreferenceRows(plan)}) {
    for (const std::string& line : part) out += StrCat(line, "\n");
  }
  return out;
}

}  // namespace tessera::scheduler

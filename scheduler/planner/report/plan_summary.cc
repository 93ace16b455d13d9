#include "scheduler/planner/report/plan_summary.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_format.h"
#include "scheduler/input/runtime_reserve.h"
#include "scheduler/planner/report/assumption_text.h"
#include "scheduler/planner/report/note_text.h"
#include "scheduler/planner/report/plan_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr size_t kMostReplicas = 40;  // that are shown: of clusters of thousands nobody reads more
constexpr double kAlike = 5e-4;
constexpr char kSure[] = "how sure:";
constexpr double kWidePercent = 10;  // of a bound: it says little about the plan

using Lines = std::vector<std::string>;

// Cut at blanks; what follows the first line is set in, what would be a line too many is left out.
void Wrap(const std::string& text, const std::string& indent, size_t most_lines, Lines* lines) {
  std::string rest = text, begin = indent;
  for (size_t line = 0; line < most_lines && !rest.empty(); ++line) {
    const size_t room = kSummaryColumns - begin.size();
    if (rest.size() <= room) {
      lines->push_back(begin + rest);
      return;
    }
    const bool last = line + 1 == most_lines;
    size_t cut = rest.rfind(' ', last ? room - 4 : room);
    if (cut == std::string::npos || cut == 0) cut = last ? room - 4 : room;
    lines->push_back(StrCat(begin, rest.substr(0, cut), last ? " ..." : ""));
    rest.erase(0, rest.find_first_not_of(' ', cut));
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
    const int width = first.workers_size();
    const std::string& kind = first.workers(0).kind();
    v1::Replica run;
    int64_t end = 0;
    for (; j < replica.stages_size() && replica.stages(j).workers_size() == width &&
           replica.stages(j).workers(0).kind() == kind;
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
  for (int i = 0; i < plan.replicas_size() && shown < kMostReplicas; ++shown) {
    int end = i + 1;
    while (end < plan.replicas_size() && Alike(plan.replicas(i), plan.replicas(end)) &&
           AlikeText(plan, i, end + 1).size() + kIndent <= kSummaryColumns)
      ++end;
    Wrap(AlikeText(plan, i, end), "  ", 1, lines);
    i = end;
    if (shown + 1 == kMostReplicas && i < plan.replicas_size())
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
  if (c.proved() || (c.upper_bound() > 0 && c.gap() < kAlike))
    return "no plan of this kind is better: proved, for the cost model's figures";
  if (c.upper_bound() <= 0) return "not proved to be the best: no bound is known";
  const double higher = 100 * (c.upper_bound() / c.value() - 1);
  return absl::StrFormat("not proved to be the best: the bound%s is %.1f %% higher",
                         higher > kWidePercent ? ", which ignores most of the links' cost," : "",
                         higher);
}

// Of the first note of such a fact, its first half; empty: there is none.
std::string Noted(const v1::DeploymentPlan& plan, v1::Note::FactCase fact) {
  for (const v1::Note& note : plan.notes()) {
    if (note.fact_case() != fact) continue;
    const std::string line = NoteText(note, plan);
    return line.substr(0, line.find("; "));
  }
  return "";
}

// Lines of how sure the rest is, most important ones first.
Lines SureLines(const v1::DeploymentPlan& plan) {
  Lines texts = {Noted(plan, v1::Note::kUnmeasuredPipelines), EstimatesText(plan), BoundText(plan)};
  for (const auto fact : {v1::Note::kLimitsCost, v1::Note::kSimplicityCost,
                          v1::Note::kSequenceLimit, v1::Note::kLostMachine})
    texts.push_back(Noted(plan, fact));
  std::erase(texts, "");
  return texts;
}

// As many as there is room for, at least one; where it is short, the first beside the heading.
void AddSure(const Lines& texts, size_t room, Lines* lines) {
  size_t shown = 0;
  if (texts.size() < room) {
    lines->emplace_back(kSure);
  } else {
    Wrap(texts[shown++], StrCat(kSure, " "), 1, lines);
    --room;
  }
  for (; shown < texts.size() && room > 0; ++shown, --room) Wrap(texts[shown], "  ", 1, lines);
}

// A line of each, and a second one where there is room for it.
Lines WarningLines(const Lines& texts, size_t room) {
  Lines lines;
  for (size_t i = 0; i < texts.size() && lines.size() < room; ++i) {
    const bool two = room - lines.size() > texts.size() - i;
    Wrap(texts[i], "", two ? 2 : 1, &lines);
  }
  return lines;
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
    Wrap(StrCat(first, "tessera up ", commands.weights, " --plan ", file), "", 2, lines);
  } else {
    Wrap(StrCat(first, "tessera-coordinator ", commands.weights, " --plan ", file,
                " --host HOST --cluster-token-file TOKEN (the same secret on every machine), and"),
         "", 2, lines);
    Wrap(StrCat("on machine M, per device M/N: tessera-worker --coordinator HOST:8001 --listen M:0 "
                "--cluster-token-file TOKEN --name M/N",
                gpus && cpus ? ", for a GPU also" : "", gpus ? " --device cuda:N" : ""),
         "  ", 2, lines);
  }
  Wrap("--explain shows the rest: memory, routing, links, other choices, every assumption", "", 1,
       lines);
  if (!commands.picture.empty()) Wrap(StrCat("drawn in ", commands.picture), "", 1, lines);
}

}  // namespace

std::string PlanSummary(const v1::DeploymentPlan& plan, const SummaryCommands& commands) {
  size_t devices = 0;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages())
      devices += static_cast<size_t>(stage.workers_size());
  }
  Lines warnings, head, where, rest, next;
  constexpr size_t kMaxWarnings = 3;
  if (const std::string cut = CutText(plan); !cut.empty()) warnings.push_back(cut);
  for (const std::string& line : NoteLines(plan)) {
    if (IsWarning(line) && warnings.size() < kMaxWarnings) warnings.push_back(line);
  }
  Wrap(StrCat(plan.model().name(), " on ", CountText(devices, "device"), ", ",
              CountText(static_cast<size_t>(plan.replicas_size()), "replica"), ": ",
              HeadlineRate(plan), AfterLossText(plan)),
       "", 2, &head);
  where.push_back(
      "what runs where (TP: tensor parallel, devices share every layer; stages: pipeline "
      "parallel):");
  AddReplicas(plan, &where);
  Wrap(Noted(plan, v1::Note::kIdle), "  ", 1, &where);
  rest.push_back("what to expect:");
  Wrap(LatencyText(plan), "  ", 1, &rest);
  Wrap(PriceText(plan), "  ", 1, &rest);
  AddNext(plan, commands, &next);
  // Of warnings the second lines give way, then what is said of how sure the rest is but its first.
  size_t room = static_cast<size_t>(kSummaryLines + plan.replicas_size()) - head.size() -
                where.size() - rest.size() - next.size();
  warnings = WarningLines(warnings, room - 1);
  room -= warnings.size();
  AddSure(SureLines(plan), room, &rest);
  std::string out;
  for (const Lines* part : {&warnings, &head, &where, &rest, &next}) {
    for (const std::string& line : *part) out += StrCat(line, "\n");
  }
  return out;
}

}  // namespace tessera::scheduler

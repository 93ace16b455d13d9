#include "scheduler/planner/report/pace_text.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/planner/report/plan_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

std::string StageText(int stage, const std::string& kind) {
  return StrCat("stage ", stage, " (", kind, ")");
}

std::string LinkText(const v1::NamedLink& link) {
  return StrCat(link.to().empty()          ? StrCat("the uplink of ", link.from())
                : link.to() == link.from() ? StrCat("the link inside ", link.from())
                                           : StrCat("the link ", link.from(), " -> ", link.to()),
                " (", GbitText(link.bytes_per_second()), ")");
}

std::string SlowestText(const v1::Pace& pace) {
  const std::string stage = StageText(pace.slowest_stage(), pace.kind());
  if (pace.hop_seconds() > 0) {
    return absl::StrFormat(
        "%s sets the pace, %.3g ms per step where the slowest stage, %s, takes %.3g ms",
        LinkText(pace.slowest_hop()), pace.hop_seconds() * 1e3, stage, pace.stage_seconds() * 1e3);
  }
  if (pace.hops_share() > 0) {
    return absl::StrFormat(
        "%s is the slowest, and each of the %d steps under way spends %.0f %% of its time on "
        "links, most on %s",
        stage, pace.steps_under_way(), 100 * pace.hops_share(), LinkText(pace.slowest_hop()));
  }
  return StrCat(stage, " is the slowest");
}

std::string FullText(const v1::Pace& pace) {
  std::vector<std::string> links;
  for (const v1::NamedLink& link : pace.full_links()) links.push_back(LinkText(link));
  return StrCat(absl::StrJoin(links, " and "), links.size() == 1 ? " is full, " : " are full, ");
}

}  // namespace

std::string UnitText(v1::ValueUnit unit) {
  switch (unit) {
    case v1::VALUE_UNIT_REQUESTS_AFTER_LOSS: return "requests/s after the loss of a machine";
    case v1::VALUE_UNIT_TIMES_ASKED: return "times the asked rates";
    case v1::VALUE_UNIT_TIMES_ALONE: return "times what each model would serve alone";
    case v1::VALUE_UNIT_USD_PER_HOUR: return "USD/h";
    default: return "requests/s";
  }
}

std::string LimitText(const v1::LimitedBy& limit) {
  switch (limit.limit()) {
    case v1::PACE_LIMIT_KV: return "KV memory";
    case v1::PACE_LIMIT_TPOT: return "the allowed time per output token";
    case v1::PACE_LIMIT_STEP_TOKENS:
      return StrCat("--max-batched-tokens, ", limit.most(), " in a step");
    case v1::PACE_LIMIT_SEQUENCES:
      return StrCat("--max-sequences, ", limit.most(), " decoding at once");
    case v1::PACE_LIMIT_PROMPTS: return "how many prompts may begin in one step";
    case v1::PACE_LIMIT_OBJECTIVES: return "the latency objectives";
    default: return "nothing";
  }
}

std::string PaceText(const v1::Pace& pace) {
  const bool behind_links = !pace.full_links().empty();
  std::string text = StrCat(behind_links ? FullText(pace) : "", SlowestText(pace));
  if (!pace.has_limit()) return text;
  const bool rate = pace.limit().limit() == v1::PACE_LIMIT_OBJECTIVES;
  text += behind_links ? ", its own " : rate ? ", the " : ", ";
  text +=
      StrCat(rate ? "rate is" : "requests at once are", " limited by ", LimitText(pace.limit()));
  if (pace.limit().limit() == v1::PACE_LIMIT_KV)
    text += StrCat(" of ", StageText(pace.limit().stage(), pace.limit().kind()));
  return text;
}

}  // namespace tessera::scheduler

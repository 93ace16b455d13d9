#include "coordinator/fairness/deadline_turns.h"

#include <algorithm>
#include <iterator>

namespace tessera::coordinator {
namespace {

constexpr size_t kMaxWorkflows = 10'000;
// How long a workflow is remembered beyond its deadline: its late calls are late ones.
constexpr double kRememberedSeconds = 600;

}  // namespace

std::optional<double> DeadlineTurns::DeadlineOf(const GenerationRequest& request,
                                                double now_seconds) {
  std::optional<double> deadline;
  if (request.deadline_seconds.has_value()) deadline = now_seconds + *request.deadline_seconds;
  if (request.workflow.empty()) return deadline;
  const auto key = std::pair(request.client, request.workflow);
  if (deadline.has_value()) {
    if (workflows_.size() >= kMaxWorkflows) {
      std::erase_if(workflows_, [&](const auto& entry) {
        return entry.second + kRememberedSeconds < now_seconds;
      });
    }
    if (workflows_.size() >= kMaxWorkflows) workflows_.erase(workflows_.begin());
    workflows_[key] = *deadline;
    return deadline;
  }
  const auto found = workflows_.find(key);
  if (found != workflows_.end()) deadline = found->second;
  return deadline;
}

std::optional<DeadlineTurns::Place> DeadlineTurns::Enter(const GenerationRequest& request,
                                                         uint64_t turn, double expected_seconds,
                                                         double now_seconds) {
  const std::optional<double> deadline = DeadlineOf(request, now_seconds);
  if (!deadline.has_value()) return std::nullopt;
  const scheduler::DeadlineCall call = {
      .deadline_seconds = *deadline,
      .stages_left = static_cast<double>(std::max(1, request.workflow_stages_left)),
      .expected_seconds = expected_seconds};
  Place place = {.turn = turn,
                 .asked_seconds = now_seconds,
                 .deadline_seconds = *deadline,
                 .latest_begin_seconds = scheduler::LatestBegin(call, now_seconds),
                 .late_turn = turn + kBehindTokens,
                 .rank = scheduler::DeadlineRank(call, now_seconds)};
  std::multimap<double, uint64_t>& others = waiting_[request.client];
  if (!scheduler::CanMakeIt(call, now_seconds)) {
    place.turn = place.late_turn;
  } else {
    // Between its neighbours, so that turns never fall from rank to rank: the first one's is the
    // least of all.
    const auto next = others.upper_bound(place.rank);
    if (next != others.end()) place.turn = std::min(turn, std::max<uint64_t>(next->second, 2) - 1);
    if (next != others.begin()) place.turn = std::max(place.turn, std::prev(next)->second);
  }
  others.emplace(place.rank, place.turn);
  return place;
}

void DeadlineTurns::Leave(const std::string& client, const Place& place) {
  const auto others = waiting_.find(client);
  if (others == waiting_.end()) return;
  const auto [first, last] = others->second.equal_range(place.rank);
  const auto found =
      std::find_if(first, last, [&](const auto& entry) { return entry.second == place.turn; });
  if (found != last) others->second.erase(found);
  if (others->second.empty()) waiting_.erase(others);
}

}  // namespace tessera::coordinator

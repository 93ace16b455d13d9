#include "coordinator/api/dropped_turns.h"

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "coordinator/api/body_reader.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr size_t kStays = std::numeric_limits<size_t>::max();

bool IsSystem(const Ordered& role) { return role == "system" || role == "developer"; }

}  // namespace

DroppedTurns::DroppedTurns(const Ordered& messages) : parts_(messages.size(), kStays) {
  size_t last_user = messages.size();  // none
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i]["role"] == "user") last_user = i;
  }
  std::map<std::string, size_t> part_of_call;
  bool begun = false;  // a part, which the next message may belong to
  for (size_t i = 0; i < messages.size(); ++i) {
    const Ordered& role = messages[i]["role"];
    if (IsSystem(role)) continue;
    if (i == last_user) {
      begun = false;
      continue;
    }
    const bool in_last_turn = i > last_user || last_user == messages.size();
    if (!begun || role == (in_last_turn ? "assistant" : "user")) ++count_;
    begun = true;
    parts_[i] = count_ - 1;
    const Ordered& answered = Member(messages[i], "tool_call_id");
    if (answered.is_string()) {
      const auto call = part_of_call.find(answered.get<std::string>());
      if (call != part_of_call.end()) parts_[i] = call->second;
    }
    for (const Ordered& call : Member(messages[i], "tool_calls")) {
      if (const Ordered& id = Member(call, "id"); id.is_string())
        part_of_call[id.get<std::string>()] = parts_[i];
    }
  }
  if (!begun) return;  // the last message is the user's
  --count_;
  for (size_t& part : parts_) {
    if (part == count_) part = kStays;
  }
}

Ordered DroppedTurns::Without(size_t dropped, const Ordered& messages) const {
  Ordered kept = Ordered::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (parts_[i] == kStays || parts_[i] >= dropped) kept.push_back(messages[i]);
  }
  return kept;
}

}  // namespace tessera::coordinator

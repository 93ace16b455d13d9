// What a chat may leave out so that it fits a context, oldest first.
//
// System and developer messages stay, and so does the last turn: the last message of a user, and
// the last step that follows it. A step is a message of the assistant with the outputs of its
// calls; calls and outputs go together. Before the last user message whole turns go, behind it
// steps.
//
// Thread rule: pure functions. Messages are those of a chat, each an object with a string role.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace tessera::coordinator {

class DroppedTurns {
 public:
  explicit DroppedTurns(const nlohmann::ordered_json& messages);

  // How many parts may go, one after the other.
  size_t count() const { return count_; }

  // The messages without the first `dropped` parts.
  nlohmann::ordered_json Without(size_t dropped, const nlohmann::ordered_json& messages) const;

 private:
  std::vector<size_t> parts_;  // of each message; of one that stays, the largest number
  size_t count_ = 0;
};

}  // namespace tessera::coordinator

#include "worker/formation/stage_hops.h"

#include <algorithm>
#include <utility>

#include "kernels/links/shared_memory.h"
#include "third_party/absl/str_cat.h"
#include "worker/formation/formation_frames.h"
#include "worker/formation/stage_group.h"

namespace tessera::worker {
namespace {

using PairOrStatus = absl::StatusOr<std::unique_ptr<kernels::DeviceSums>>;

constexpr int kPair = 2;
// Devices end their own waits earlier.
constexpr kernels::GroupOptions kOptions = {.timeout_seconds = 600};

// What a member tells the leader of itself.
struct HopEnd {
  std::string why_not;  // one line
  RankDevice device;
};

std::string WordsOf(const HopEnd& end, const kernels::GroupMaker* maker) {
  return StrCat(end.why_not, "\n", TextOf(maker));
}

HopEnd EndOf(const std::string& text) {
  const size_t line = std::min(text.find('\n'), text.size());
  return {text.substr(0, line), DeviceOf(text.substr(std::min(line + 1, text.size())))};
}

// Memory that this member makes, for those whose rank 0 it is.
struct Memories {
  absl::StatusOr<kernels::SharedMemory> next, tokens;
};

absl::StatusOr<kernels::SharedMemory> MemoryFor(const kernels::Link* link,
                                                kernels::GroupMaker* maker) {
  if (link == nullptr || maker == nullptr) return kernels::SharedMemory{};
  return kernels::CreateSharedMemory(maker->SumsMemoryBytes(kPair));
}

std::string WhyNotHere(const HopLinks& links, const Memories& memories) {
  for (const kernels::Link* link : {links.leader, links.previous, links.next}) {
    if (link != nullptr && !link->is_unix()) return StrCat(link->peer(), " is on another machine");
  }
  if (links.has_ranks && links.sums == nullptr) return "the devices of its ranks do not meet";
  for (const auto* memory : {&memories.next, &memories.tokens}) {
    if (!memory->ok()) return std::string(memory->status().message());
  }
  return "";
}

// What all said, the leader first.
class Round {
 public:
  Round(const HopLinks& links, FrameType type, double wait_seconds,
        const std::function<bool()>& cancelled)
      : links_(links), type_(type), wait_seconds_(wait_seconds), cancelled_(cancelled) {}

  // Tells the leader this member's `text`, and returns the leader's answer, which `decide` makes of
  // all texts there.
  absl::StatusOr<std::string> Agree(
      const std::string& text,
      const std::function<std::string(const std::vector<std::string>&)>& decide) const {
    std::string answer;
    absl::Status status;
    if (links_.leader != nullptr) {
      status = SendText(*links_.leader, type_, text);
      if (status.ok()) status = AwaitText(links_.leader, type_, &answer, wait_seconds_, cancelled_);
    } else {
      std::vector<std::string> texts = {text};
      for (kernels::Link* member : links_.members) {
        status.Update(AwaitText(member, type_, &texts.emplace_back(), wait_seconds_, cancelled_));
        if (!status.ok()) return status;
      }
      answer = decide(texts);
      for (kernels::Link* member : links_.members) status.Update(SendText(*member, type_, answer));
    }
    if (!status.ok()) return status;
    return answer;
  }

 private:
  const HopLinks& links_;
  const FrameType type_;
  const double wait_seconds_;
  const std::function<bool()>& cancelled_;
};

std::string NameOf(const HopLinks& links, size_t member) {
  return member == 0 ? "the leader" : links.members[member - 1]->peer();
}

std::string FirstReason(const HopLinks& links, const std::vector<std::string>& texts) {
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].empty()) return StrCat(NameOf(links, i), ": ", texts[i]);
  }
  return "";
}

std::string WhyNot(const HopLinks& links, const std::vector<std::string>& texts) {
  std::vector<std::string> reasons;
  std::vector<RankDevice> devices;
  for (const std::string& text : texts) {
    const HopEnd end = EndOf(text);
    reasons.push_back(end.why_not);
    devices.push_back(end.device);
  }
  std::string reason =
      WhyNotMapped(devices, [&links](size_t member) { return NameOf(links, member); });
  return reason.empty() ? FirstReason(links, reasons) : reason;
}

PairOrStatus Give(kernels::Link* to, kernels::SharedMemory memory, kernels::GroupMaker* maker) {
  if (to == nullptr) return nullptr;
  absl::Status sent = to->SendDescriptor(memory.file.get(), kSendSeconds);
  if (!sent.ok()) return sent;
  return maker->MapSums(0, kPair, std::move(memory.memory), kOptions);
}

PairOrStatus Take(kernels::Link* from, kernels::GroupMaker* maker) {
  if (from == nullptr) return nullptr;
  auto memory = kernels::ReceiveSharedMemory(*from, maker->SumsMemoryBytes(kPair), kSendSeconds);
  if (!memory.ok()) return memory.status();
  return maker->MapSums(1, kPair, std::move(memory->memory), kOptions);
}

}  // namespace

absl::StatusOr<StageHops> StageHops::Open(const HopLinks& links, kernels::GroupMaker* maker,
                                          double wait_seconds,
                                          const std::function<bool()>& cancelled) {
  Memories memories = {MemoryFor(links.next, maker), MemoryFor(links.drawer, maker)};
  const HopEnd own = {WhyNotHere(links, memories), {}};
  auto answer =
      Round(links, FrameType::kHopDevice, wait_seconds, cancelled)
          .Agree(WordsOf(own, maker), [&links](const auto& texts) { return WhyNot(links, texts); });
  if (!answer.ok()) return answer.status();
  StageHops hops;
  hops.why_not_ = *std::move(answer);
  if (!hops.why_not_.empty()) return hops;

  // In this order, so that the stages come to each other one by one.
  PairOrStatus previous = Take(links.previous, maker);
  PairOrStatus next = Give(links.next, *std::move(memories.next), maker);
  PairOrStatus tokens = links.draws ? Take(links.leader, maker)
                                    : Give(links.drawer, *std::move(memories.tokens), maker);
  absl::Status mapped = previous.status();
  mapped.Update(next.status());
  mapped.Update(tokens.status());
  answer = Round(links, FrameType::kHopsMapped, wait_seconds, cancelled)
               .Agree(std::string(mapped.message()),
                      [&links](const auto& texts) { return FirstReason(links, texts); });
  if (!answer.ok()) return answer.status();
  hops.why_not_ = *std::move(answer);
  if (!hops.why_not_.empty()) return hops;
  hops.previous_ = *std::move(previous);
  hops.next_ = *std::move(next);
  hops.tokens_ = *std::move(tokens);
  hops.hops_ = {hops.previous_.get(), hops.next_.get(), hops.tokens_.get(), 0};
  const std::vector<kernels::DeviceSums*> pairs = hops.pairs();
  // Devices of one kind take as much, so that all members cut rows into the same pieces.
  hops.hops_.piece_bytes = (pairs.empty() ? links.sums : pairs.front())->max_bytes();
  return hops;
}

std::vector<kernels::DeviceSums*> StageHops::pairs() const {
  std::vector<kernels::DeviceSums*> pairs;
  for (const auto* pair : {&previous_, &next_, &tokens_}) {
    if (*pair != nullptr) pairs.push_back(pair->get());
  }
  return pairs;
}

}  // namespace tessera::worker

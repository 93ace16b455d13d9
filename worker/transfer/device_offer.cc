#include "worker/transfer/device_offer.h"

#include <utility>

#include "third_party/absl/str_cat.h"
#include "worker/transfer/kv_frame.h"

namespace tessera::worker {
namespace {

constexpr char kRuledOut[] =
    "the connection is inside TLS, and NCCL is not (--nccl-plain lets it pass)";

constexpr int64_t kMaxTextBytes = 1 << 12;
constexpr double kSendSeconds = 5;

// The first byte of an offer's third line, whose rest is the pair's id; of none: whether the
// receiver would join one.
constexpr char kKept = 'k', kNew = 'n';
// The first byte of an answer; the reason follows where it is refused.
constexpr char kHas = 'h', kHasNot = 'm', kJoins = 'j', kRefused = 'r';

using PairOrStatus = absl::StatusOr<std::shared_ptr<PairedDevice>>;

absl::Status SendText(kernels::Link& link, KvFrame type, const std::string& text) {
  return link.Send(static_cast<uint16_t>(type),
                   {reinterpret_cast<const std::byte*>(text.data()), text.size()}, kSendSeconds);
}

absl::StatusOr<std::string> AwaitText(kernels::Link& link, KvFrame type, double timeout_seconds) {
  std::string text;
  const auto came = link.ReceiveAny(kMaxTextBytes, &text, timeout_seconds);
  if (!came.ok()) return came.status();
  if (*came == static_cast<uint16_t>(type)) return text;
  return absl::InvalidArgumentError(
      StrCat("a frame of type ", *came, " where devices are joined for KV"));
}

std::string Text(const absl::Status& status) { return std::string(StdView(status.message())); }

// Both ends' words on a join; empty: both did.
std::string WhyNot(const std::string& sender, const std::string& receiver) {
  if (!receiver.empty()) return StrCat("the receiver could not join: ", receiver);
  return sender.empty() ? "" : StrCat("the sender could not join: ", sender);
}

struct Offered {
  char answer = kRefused;
  std::string why_not;
};

absl::StatusOr<Offered> Offer(kernels::Link& link, const DevicePairs& pairs, char kind,
                              const std::string& id) {
  absl::Status sent = SendText(link, KvFrame::kDeviceOffer,
                               StrCat(pairs.maker().device_id(), "\n", pairs.maker().library(),
                                      "\n", std::string(1, kind), id));
  if (!sent.ok()) return sent;
  // The peer may have to wait until it has joined for another connection.
  auto answer =
      AwaitText(link, KvFrame::kDeviceAnswer, 2 * pairs.options().join_seconds + kSendSeconds);
  if (!answer.ok()) return answer.status();
  if (answer->empty()) return absl::InvalidArgumentError("an empty answer to an offer of a device");
  return Offered{(*answer)[0], answer->substr(1)};
}

absl::StatusOr<OfferedDevice> JoinAsSender(kernels::Link& link, DevicePairs::Slot& slot,
                                           const std::string& id, double join_seconds,
                                           const std::function<bool()>& cancelled) {
  auto joined = slot.Join(id, cancelled);
  const auto of_peer = AwaitText(link, KvFrame::kDeviceJoined, join_seconds + kSendSeconds);
  if (!of_peer.ok()) {
    slot.Drop();
    return of_peer.status();
  }
  const std::string own = Text(joined.status());
  if (absl::Status sent = SendText(link, KvFrame::kDeviceJoined, own); !sent.ok()) {
    slot.Drop();
    return sent;
  }
  const std::string why_not = WhyNot(own, *of_peer);
  if (why_not.empty()) return OfferedDevice{*std::move(joined), ""};
  return OfferedDevice{nullptr, slot.HoldOff(why_not)};
}

PairOrStatus JoinAsReceiver(kernels::Link& link, DevicePairs::Slot& slot, const std::string& id,
                            double join_seconds, const std::function<bool()>& cancelled) {
  auto joined = slot.Join(id, cancelled);
  absl::Status status = SendText(link, KvFrame::kDeviceJoined, Text(joined.status()));
  std::string of_peer;
  if (status.ok()) {
    auto came = AwaitText(link, KvFrame::kDeviceJoined, join_seconds + kSendSeconds);
    status = came.status();
    if (status.ok()) of_peer = *std::move(came);
  }
  if (status.ok() && joined.ok() && of_peer.empty()) return joined;
  slot.Drop();
  if (!status.ok()) return status;
  return nullptr;
}

}  // namespace

absl::StatusOr<OfferedDevice> OfferDevice(kernels::Link& link, DevicePairs& pairs, uint64_t peer,
                                          const std::function<bool()>& over) {
  if (link.rules_out_nccl()) return OfferedDevice{nullptr, kRuledOut};
  const auto cancelled = [&] { return over() || !link.status().ok() || link.PeerClosed(); };
  auto slot = pairs.TakeSlot(DevicePairs::Way::kTo, peer, cancelled);
  if (absl::IsDeadlineExceeded(slot.status())) return OfferedDevice{nullptr, Text(slot.status())};
  if (!slot.ok()) return slot.status();
  if (const std::string why_not = slot->held_off(); !why_not.empty())
    return OfferedDevice{nullptr, why_not};
  auto kept = slot->kept();
  const auto asked = Offer(link, pairs, kKept, kept == nullptr ? "" : kept->id());
  if (!asked.ok()) return asked.status();
  if (asked->answer == kRefused) return OfferedDevice{nullptr, asked->why_not};
  if (asked->answer == kHas && kept != nullptr) return OfferedDevice{std::move(kept), ""};
  kept.reset();
  slot->Drop();
  const auto id = pairs.maker().NewId();
  if (!id.ok()) return OfferedDevice{nullptr, slot->HoldOff(Text(id.status()))};
  const auto offered = Offer(link, pairs, kNew, *id);
  if (!offered.ok()) return offered.status();
  if (offered->answer != kJoins) return OfferedDevice{nullptr, offered->why_not};
  return JoinAsSender(link, *slot, *id, pairs.options().join_seconds, cancelled);
}

PairOrStatus AnswerDeviceOffer(kernels::Link& link, DevicePairs* pairs, uint64_t peer,
                               const std::string& offer) {
  const size_t line = offer.find('\n');
  const size_t next = line == std::string::npos ? line : offer.find('\n', line + 1);
  if (next == std::string::npos || next + 2 > offer.size())
    return absl::InvalidArgumentError("an offer of a device for KV is cut short");
  const std::string id = offer.substr(next + 2);
  const auto answer = [&](char what, const std::string& why = "") {
    return SendText(link, KvFrame::kDeviceAnswer, StrCat(std::string(1, what), why));
  };
  const std::string why_not =
      link.rules_out_nccl() ? kRuledOut
      : pairs == nullptr
          ? "the receiver's device has no NCCL"
          : pairs->WhyNotFrom(offer.substr(0, line), offer.substr(line + 1, next - line - 1));
  absl::Status answered;
  if (!why_not.empty()) {
    answered = answer(kRefused, why_not);
    if (!answered.ok()) return answered;
    return nullptr;
  }
  const auto cancelled = [&] { return !link.status().ok() || link.PeerClosed(); };
  auto slot = pairs->TakeSlot(DevicePairs::Way::kFrom, peer, cancelled);
  if (!slot.ok()) return slot.status();
  if (offer[next + 1] == kNew) {
    answered = answer(kJoins);
    if (!answered.ok()) return answered;
    return JoinAsReceiver(link, *slot, id, pairs->options().join_seconds, cancelled);
  }
  auto kept = slot->kept();
  if (kept != nullptr && kept->id() != id) kept = nullptr;
  answered = answer(kept != nullptr ? kHas : kHasNot);
  if (!answered.ok()) return answered;
  return kept;
}

}  // namespace tessera::worker

#include "worker/transfer/kv_channel.h"

#include <cstring>
#include <utility>

#include "third_party/absl/str_cat.h"
#include "worker/transfer/device_offer.h"

namespace tessera::worker {
namespace {

constexpr int64_t kMaxHeaderBytes = 1 << 12;
constexpr int64_t kMemoryBytes = kKvSlots * kKvSlotBytes;

template <typename T>
absl::Span<const std::byte> BytesOf(const T& value) {
  return {reinterpret_cast<const std::byte*>(&value), sizeof value};
}

uint16_t Type(KvFrame frame) { return static_cast<uint16_t>(frame); }

absl::Status Misplaced(uint16_t type) {
  return absl::InvalidArgumentError(StrCat("a frame of type ", type, " among KV"));
}

// Whether a wait for the peer's device is futile.
std::function<bool()> Ended(const kernels::Link& link) {
  return [&link] { return !link.status().ok() || link.PeerClosed(); };
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvSendChannel>> KvSendChannel::Open(kernels::Link* link,
                                                                   bool shares_memory,
                                                                   double timeout_seconds) {
  std::unique_ptr<KvSendChannel> channel(new KvSendChannel(link));
  if (!shares_memory) return channel;
  absl::StatusOr<kernels::SharedMemory> memory = kernels::CreateSharedMemory(kMemoryBytes);
  if (!memory.ok()) return memory.status();
  absl::Status sent =
      link->Send(Type(KvFrame::kMemory), absl::Span<const std::byte>(), timeout_seconds);
  if (sent.ok()) sent = link->SendDescriptor(memory->file.get(), timeout_seconds);
  if (!sent.ok()) return sent;
  channel->memory_ = std::move(memory->memory);
  return channel;
}

std::unique_ptr<KvSendChannel> KvSendChannel::Open(kernels::Link* link,
                                                   std::shared_ptr<PairedDevice> device) {
  std::unique_ptr<KvSendChannel> channel(new KvSendChannel(link));
  channel->device_ = std::move(device);
  return channel;
}

int64_t KvSendChannel::max_piece_bytes() const {
  if (on_device()) return device_->memory_bytes();
  return memory_ ? kKvSlotBytes : kMaxPieceBytes;
}

KvTransport KvSendChannel::transport() const {
  if (on_device()) return KvTransport::kNccl;
  if (memory_ != nullptr) return KvTransport::kSharedMemory;
  return link_->is_unix() ? KvTransport::kUnix : KvTransport::kTcp;
}

absl::StatusOr<absl::Span<std::byte>> KvSendChannel::Prepare(int64_t bytes,
                                                             double timeout_seconds) {
  const auto size = static_cast<size_t>(bytes);
  if (on_device()) {
    if (bytes > device_->memory_bytes()) {
      return absl::InvalidArgumentError(StrCat(
          "a KV piece of ", bytes, " bytes; devices exchange at most ", device_->memory_bytes()));
    }
    absl::Status taken = has_turn_ ? absl::OkStatus() : device_->TakeTurn(timeout_seconds);
    if (!taken.ok()) return taken;
    has_turn_ = true;
    return prepared_ = device_->devices().memory().subspan(0, size);
  }
  if (memory_ == nullptr) {
    elements_.resize(size);
    return prepared_ = absl::MakeSpan(elements_);
  }
  while (pieces_ - taken_ >= kKvSlots) {
    const auto taken =
        link_->Receive(Type(KvFrame::kSlotFree), absl::Span<std::byte>(), timeout_seconds);
    if (!taken.ok()) return taken.status();
    ++taken_;
  }
  return prepared_ = {memory_.get() + pieces_ % kKvSlots * kKvSlotBytes, size};
}

absl::Status KvSendChannel::Send(const v1::KvPiece& piece, double timeout_seconds) {
  const std::string header = piece.SerializeAsString();
  const auto length = static_cast<uint32_t>(header.size());
  const auto bytes = static_cast<uint32_t>(prepared_.size());
  const bool elsewhere = memory_ != nullptr || on_device();
  const absl::Span<const std::byte> parts[] = {
      BytesOf(length),
      {reinterpret_cast<const std::byte*>(header.data()), header.size()},
      elsewhere ? BytesOf(bytes) : absl::Span<const std::byte>(prepared_)};
  if (elsewhere) {
    ++pieces_;
    memory_bytes_ += bytes;
  }
  KvFrame type = memory_ != nullptr ? KvFrame::kPieceInMemory : KvFrame::kPiece;
  if (on_device()) type = KvFrame::kPieceOnDevice;
  absl::Status sent = link_->Send(Type(type), absl::MakeConstSpan(parts), timeout_seconds);
  return sent.ok() && on_device() ? SendOnDevice(timeout_seconds) : sent;
}

absl::Status KvSendChannel::SendOnDevice(double timeout_seconds) {
  const auto expected =
      link_->Receive(Type(KvFrame::kSendOnDevice), absl::Span<std::byte>(), timeout_seconds);
  absl::Status sent = expected.status();
  if (sent.ok()) {
    sent = device_->devices().Send(static_cast<int64_t>(prepared_.size()), timeout_seconds,
                                   Ended(*link_));
  }
  EndTurn();
  return sent;
}

void KvSendChannel::EndTurn() {
  if (std::exchange(has_turn_, false)) device_->GiveTurn();
}

absl::StatusOr<bool> KvSendChannel::AwaitComplete(double timeout_seconds) {
  std::string staged;
  for (;;) {
    const auto type = link_->ReceiveAny(1, &staged, timeout_seconds);
    if (!type.ok()) return type.status();
    if (*type == Type(KvFrame::kComplete)) return !staged.empty();
    if (*type != Type(KvFrame::kSlotFree)) return Misplaced(*type);
  }
}

absl::StatusOr<KvFramedPiece> KvReceiveChannel::Receive(double timeout_seconds) {
  for (;;) {
    const auto type =
        link_->ReceiveAny(kMaxPieceBytes + kMaxHeaderBytes, &payload_, timeout_seconds);
    if (!type.ok()) return type.status();
    in_memory_ = *type == Type(KvFrame::kPieceInMemory);
    if (in_memory_) return FromMemory();
    if (*type == Type(KvFrame::kPieceOnDevice)) return FromDevice();
    if (*type == Type(KvFrame::kPiece)) return SplitPiece(payload_);
    if (*type == Type(KvFrame::kDeviceOffer)) {
      auto answered = AnswerDeviceOffer(*link_, pairs_, sender_, payload_);
      if (absl::IsDeadlineExceeded(answered.status()))
        return absl::UnavailableError(answered.status().message());
      if (!answered.ok()) return answered.status();
      device_ = *std::move(answered);
      continue;
    }
    if (*type != Type(KvFrame::kMemory) || memory_ != nullptr || !payload_.empty())
      return Misplaced(*type);
    absl::StatusOr<kernels::SharedMemory> memory =
        kernels::ReceiveSharedMemory(*link_, kMemoryBytes, timeout_seconds);
    if (!memory.ok()) return memory.status();
    memory_ = std::move(memory->memory);
  }
}

absl::StatusOr<KvFramedPiece> KvReceiveChannel::FromMemory() {
  if (memory_ == nullptr) return Misplaced(Type(KvFrame::kPieceInMemory));
  absl::StatusOr<KvFramedPiece> piece = SplitPiece(payload_);
  if (!piece.ok()) return piece;
  const absl::StatusOr<int64_t> bytes = BytesElsewhere(*piece, kKvSlotBytes);
  if (!bytes.ok()) return bytes.status();
  const std::byte* slot = memory_.get() + pieces_++ % kKvSlots * kKvSlotBytes;
  piece->elements = {reinterpret_cast<const char*>(slot), static_cast<size_t>(*bytes)};
  return piece;
}

absl::StatusOr<int64_t> KvReceiveChannel::BytesElsewhere(const KvFramedPiece& piece,
                                                         int64_t max_bytes) {
  uint32_t bytes = 0;
  if (piece.elements.size() == sizeof bytes)
    std::memcpy(&bytes, piece.elements.data(), sizeof bytes);
  if (piece.elements.size() == sizeof bytes && bytes <= max_bytes) return int64_t{bytes};
  return absl::InvalidArgumentError(
      StrCat("a KV piece of ", bytes, " bytes in memory that has ", max_bytes));
}

absl::StatusOr<KvFramedPiece> KvReceiveChannel::FromDevice() {
  if (device_ == nullptr) return Misplaced(Type(KvFrame::kPieceOnDevice));
  absl::StatusOr<KvFramedPiece> piece = SplitPiece(payload_);
  if (!piece.ok()) return piece;
  const absl::StatusOr<int64_t> bytes = BytesElsewhere(*piece, device_->memory_bytes());
  if (!bytes.ok()) return bytes.status();
  device_bytes_ = *bytes;
  const std::byte* memory = device_->devices().memory().data();
  piece->elements = {reinterpret_cast<const char*>(memory), static_cast<size_t>(device_bytes_)};
  piece->on_device = true;
  return piece;
}

absl::Status KvReceiveChannel::Fetch(double timeout_seconds) {
  absl::Status status = device_->TakeTurn(timeout_seconds);
  if (!status.ok()) return status;
  has_turn_ = true;
  if (!device_->usable())
    return absl::UnavailableError("KV of another sequence failed on the pair of devices");
  // Before the call, in which either side may first have to find the other.
  status =
      link_->Send(Type(KvFrame::kSendOnDevice), absl::Span<const std::byte>(), timeout_seconds);
  if (!status.ok()) return status;
  return device_->devices().Receive(device_bytes_, timeout_seconds, Ended(*link_));
}

void KvReceiveChannel::EndTurn() {
  if (std::exchange(has_turn_, false)) device_->GiveTurn();
}

absl::Status KvReceiveChannel::Release(double timeout_seconds) {
  EndTurn();
  if (!in_memory_) return absl::OkStatus();
  return link_->Send(Type(KvFrame::kSlotFree), absl::Span<const std::byte>(), timeout_seconds);
}

}  // namespace tessera::worker

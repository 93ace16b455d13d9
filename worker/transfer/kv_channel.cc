#include "worker/transfer/kv_channel.h"

#include <cstring>
#include <utility>

#include "third_party/absl/str_cat.h"

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

KvTransport KvSendChannel::transport() const {
  if (memory_ != nullptr) return KvTransport::kSharedMemory;
  return link_->is_unix() ? KvTransport::kUnix : KvTransport::kTcp;
}

absl::StatusOr<absl::Span<std::byte>> KvSendChannel::Prepare(int64_t bytes,
                                                             double timeout_seconds) {
  const auto size = static_cast<size_t>(bytes);
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
  const bool in_memory = memory_ != nullptr;
  const absl::Span<const std::byte> parts[] = {
      BytesOf(length),
      {reinterpret_cast<const std::byte*>(header.data()), header.size()},
      in_memory ? BytesOf(bytes) : absl::Span<const std::byte>(prepared_)};
  if (in_memory) {
    ++pieces_;
    memory_bytes_ += bytes;
  }
  return link_->Send(Type(in_memory ? KvFrame::kPieceInMemory : KvFrame::kPiece),
                     absl::MakeConstSpan(parts), timeout_seconds);
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
    if (*type == Type(KvFrame::kPiece)) return SplitPiece(payload_);
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
  uint32_t bytes = 0;
  if (piece->elements.size() == sizeof bytes)
    std::memcpy(&bytes, piece->elements.data(), sizeof bytes);
  if (piece->elements.size() != sizeof bytes || bytes > kKvSlotBytes) {
    return absl::InvalidArgumentError(
        StrCat("a KV piece in shared memory of ", bytes, " bytes; a slot has ", kKvSlotBytes));
  }
  const std::byte* slot = memory_.get() + pieces_++ % kKvSlots * kKvSlotBytes;
  piece->elements = {reinterpret_cast<const char*>(slot), bytes};
  return piece;
}

absl::Status KvReceiveChannel::Release(double timeout_seconds) {
  if (!in_memory_) return absl::OkStatus();
  return link_->Send(Type(KvFrame::kSlotFree), absl::Span<const std::byte>(), timeout_seconds);
}

}  // namespace tessera::worker

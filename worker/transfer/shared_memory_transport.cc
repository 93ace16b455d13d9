#include "worker/transfer/shared_memory_transport.h"

#include <utility>

#include "kernels/links/shared_memory.h"

namespace tessera::worker {
namespace {

constexpr int64_t kMemoryBytes = kKvSlots * kKvSlotBytes;

// The slot of a piece, by its number.
std::byte* SlotOf(const std::shared_ptr<std::byte>& memory, int64_t piece) {
  return memory.get() + piece % kKvSlots * kKvSlotBytes;
}

class SharedMemoryChannel final : public KvSendChannel {
 public:
  SharedMemoryChannel(kernels::Link* link, std::shared_ptr<std::byte> memory)
      : KvSendChannel(link), memory_(std::move(memory)) {}

  KvTransport transport() const override { return KvTransport::kSharedMemory; }
  int64_t max_piece_bytes() const override { return kKvSlotBytes; }

  absl::StatusOr<absl::Span<std::byte>> Prepare(int64_t bytes, double timeout_seconds) override {
    while (pieces_ - taken_ >= kKvSlots) {
      const auto taken =
          link().Receive(FrameType(KvFrame::kSlotFree), absl::Span<std::byte>(), timeout_seconds);
      if (!taken.ok()) return taken.status();
      ++taken_;
    }
    bytes_ = static_cast<size_t>(bytes);
    return absl::Span<std::byte>(SlotOf(memory_, pieces_), bytes_);
  }

  absl::Status Send(const v1::KvPiece& piece, double timeout_seconds) override {
    ++pieces_;
    return SendElsewhere(KvFrame::kPieceInMemory, piece, bytes_, timeout_seconds);
  }

 private:
  const std::shared_ptr<std::byte> memory_;
  size_t bytes_ = 0;    // of the piece that is prepared
  int64_t pieces_ = 0;  // that were sent
  int64_t taken_ = 0;   // of these
};

class SharedMemoryReceiver final : public KvReceiver {
 public:
  explicit SharedMemoryReceiver(kernels::Link* link) : link_(link) {}

  bool Takes(KvFrame type) const override {
    return type == KvFrame::kMemory || type == KvFrame::kPieceInMemory;
  }

  absl::StatusOr<std::optional<KvFramedPiece>> Take(KvFrame type, const std::string& payload,
                                                    double timeout_seconds) override {
    const bool sets_up = type == KvFrame::kMemory;
    if (sets_up ? memory_ != nullptr || !payload.empty() : memory_ == nullptr)
      return Misplaced(FrameType(type));
    if (sets_up) {
      absl::StatusOr<kernels::SharedMemory> memory =
          kernels::ReceiveSharedMemory(*link_, kMemoryBytes, timeout_seconds);
      if (!memory.ok()) return memory.status();
      memory_ = std::move(memory->memory);
      return std::optional<KvFramedPiece>();
    }
    const auto piece = PieceElsewhere(payload, SlotOf(memory_, pieces_), kKvSlotBytes);
    if (!piece.ok()) return piece.status();
    ++pieces_;
    return std::optional<KvFramedPiece>(*piece);
  }

  absl::Status Release(double timeout_seconds) override {
    return link_->Send(FrameType(KvFrame::kSlotFree), absl::Span<const std::byte>(),
                       timeout_seconds);
  }

 private:
  kernels::Link* const link_;
  std::shared_ptr<std::byte> memory_;  // null: the sender shares none yet
  int64_t pieces_ = 0;                 // that came
};

}  // namespace

absl::StatusOr<std::unique_ptr<KvSendChannel>> OpenSharedMemoryChannel(kernels::Link* link,
                                                                       double timeout_seconds) {
  absl::StatusOr<kernels::SharedMemory> memory = kernels::CreateSharedMemory(kMemoryBytes);
  if (!memory.ok()) return memory.status();
  absl::Status sent =
      link->Send(FrameType(KvFrame::kMemory), absl::Span<const std::byte>(), timeout_seconds);
  if (sent.ok()) sent = link->SendDescriptor(memory->file.get(), timeout_seconds);
  if (!sent.ok()) return sent;
  return std::make_unique<SharedMemoryChannel>(link, std::move(memory->memory));
}

std::unique_ptr<KvReceiver> MakeSharedMemoryReceiver(kernels::Link* link) {
  return std::make_unique<SharedMemoryReceiver>(link);
}

}  // namespace tessera::worker

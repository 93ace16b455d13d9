// Pieces of KV between the two ends of a connection, through the link and through shared memory.
#include "worker/transfer/kv_channel.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/links/link.h"
#include "kernels/links/shared_memory.h"
#include "worker/transfer/shared_memory_transport.h"
#include "worker/transfer/socket_transport.h"

namespace tessera::worker {
namespace {

struct Ends {
  Ends() {
    auto pair = kernels::CreateLinkPair("sender", "receiver");
    REQUIRE(pair.ok());
    sender = std::move(pair->first);
    receiver = std::move(pair->second);
  }
  void Send(KvFrame type, const std::string& payload) {
    const auto* data = reinterpret_cast<const std::byte*>(payload.data());
    REQUIRE(sender
                ->Send(static_cast<uint16_t>(type),
                       absl::Span<const std::byte>(data, payload.size()), 5)
                .ok());
  }
  std::unique_ptr<kernels::Link> sender, receiver;
};

template <typename T>
std::string Bytes(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

// A piece in memory of so many bytes.
std::string InMemory(uint32_t bytes) {
  const std::string header = v1::KvPiece().SerializeAsString();
  return Bytes(static_cast<uint32_t>(header.size())) + header + Bytes(bytes);
}

}  // namespace

TEST_CASE("every piece comes as it was sent, slots used again and again") {
  for (const bool shares_memory : {false, true}) {
    INFO(shares_memory);
    Ends ends;
    constexpr int kPieces = 3 * kKvSlots + 1;
    const auto size = [](int i) { return i == 1 ? 0 : kKvSlotBytes - i; };
    std::thread sends([&] {
      absl::StatusOr<std::unique_ptr<KvSendChannel>> channel = OpenSocketChannel(ends.sender.get());
      if (shares_memory) channel = OpenSharedMemoryChannel(ends.sender.get(), 10);
      bool ok = channel.ok();
      for (int i = 0; ok && i < kPieces; ++i) {
        const auto elements = (*channel)->Prepare(size(i), 10);
        ok = elements.ok();
        if (!ok) break;
        std::fill(elements->begin(), elements->end(), static_cast<std::byte>(i));
        v1::KvPiece piece;
        piece.set_first_token(i);
        ok = (*channel)->Send(piece, 10).ok();
      }
      if (ok) ok = (*channel)->AwaitComplete(10).ok();
      if (!ok) ends.sender->Shutdown(absl::InternalError("the sender failed"));
    });
    KvReceiveChannel channel(ends.receiver.get());
    int right = 0;
    for (int i = 0; i < kPieces; ++i) {
      const auto piece = channel.Receive(10);
      if (!piece.ok()) break;
      v1::KvPiece header;
      right +=
          header.ParseFromArray(piece->header.data(), static_cast<int>(piece->header.size())) &&
          header.first_token() == i && static_cast<int64_t>(piece->elements.size()) == size(i) &&
          std::all_of(piece->elements.begin(), piece->elements.end(),
                      [i](char c) { return c == static_cast<char>(i); });
      if (i + 1 < kPieces && !channel.Release(10).ok()) break;
    }
    CHECK(right == kPieces);
    const absl::Status completed = ends.receiver->Send(static_cast<uint16_t>(KvFrame::kComplete),
                                                       absl::Span<const std::byte>(), 10);
    sends.join();
    CHECK(completed.ok());
    CHECK(ends.sender->status().ok());
  }
}

TEST_CASE("a receiver that takes nothing holds its sender no longer than asked") {
  Ends ends;
  const auto channel = OpenSharedMemoryChannel(ends.sender.get(), 5);
  REQUIRE(channel.ok());
  for (int i = 0; i < kKvSlots; ++i) {
    REQUIRE((*channel)->Prepare(10, 5).ok());
    REQUIRE((*channel)->Send({}, 5).ok());
  }
  CHECK(absl::IsDeadlineExceeded((*channel)->Prepare(10, 0.05).status()));
  CHECK((*channel)->transport() == KvTransport::kSharedMemory);
  CHECK((*channel)->bytes_sent() > 40);
  CHECK((*channel)->max_piece_bytes() == kKvSlotBytes);
  CHECK(OpenSocketChannel(ends.sender.get())->max_piece_bytes() == kMaxPieceBytes);
}

TEST_CASE("memory that was not shared, not as it should be, or too short for a piece is refused") {
  const auto refused = [](const std::function<void(Ends&)>& sends) {
    Ends ends;
    sends(ends);
    KvReceiveChannel channel(ends.receiver.get());
    return channel.Receive(5).status();
  };
  const auto share = [](Ends& ends, int64_t bytes) {
    ends.Send(KvFrame::kMemory, "");
    const auto memory = kernels::CreateSharedMemory(bytes);
    REQUIRE(memory.ok());
    REQUIRE(ends.sender->SendDescriptor(memory->file.get(), 5).ok());
  };
  constexpr int64_t kRight = kKvSlots * kKvSlotBytes;
  CHECK(absl::IsInvalidArgument(
      refused([](Ends& ends) { ends.Send(KvFrame::kPieceInMemory, InMemory(1)); })));
  CHECK(absl::IsFailedPrecondition(refused([&](Ends& ends) { share(ends, kRight / 2); })));
  CHECK(absl::IsInvalidArgument(refused([&](Ends& ends) {
    share(ends, kRight);
    share(ends, kRight);
  })));
  CHECK(absl::IsInvalidArgument(refused([&](Ends& ends) {
    share(ends, kRight);
    ends.Send(KvFrame::kPieceInMemory, InMemory(kKvSlotBytes + 1));
  })));
  CHECK(absl::IsInvalidArgument(refused([&](Ends& ends) {
    share(ends, kRight);
    ends.Send(KvFrame::kPieceInMemory, InMemory(1) + "x");
  })));
  CHECK(absl::IsInvalidArgument(refused([](Ends& ends) { ends.Send(KvFrame::kComplete, ""); })));
  CHECK(refused([&](Ends& ends) {
          share(ends, kRight);
          ends.Send(KvFrame::kPieceInMemory, InMemory(kKvSlotBytes));
        }).ok());
}

}  // namespace tessera::worker

// Two workers' pools and links between them: KV of the one's goes into the other's.
#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/transfer/kv_inbox.h"
#include "worker/transfer/kv_outbox.h"

namespace tessera::worker {

class PoolMover {
 public:
  static constexpr uint64_t kSender = 5, kReceiver = 77;

  struct End {
    kvcache::KvPool pool;
    KvCoder* coder = &HostKvCoder();
    DevicePairs* pairs = nullptr;
  };
  PoolMover(const End& from, const End& to, std::optional<KvTransport> transport = std::nullopt,
            double wait_seconds = 5)
      : to_(to),
        from_(from),
        outbox_({.cluster_token = "",
                 .incarnation = kSender,
                 .wait_seconds = wait_seconds,
                 .transport = transport,
                 .coder = from.coder,
                 .pairs = from.pairs}) {
    StartInbox();
  }

  struct Came {
    KvParcelOutcome sent;
    absl::Status arrived;
  };
  // All layers and heads of tokens [first, end), and what came of it.
  Came Move(v1::KvCodec codec, const std::vector<int32_t>& from_table,
            const std::vector<int32_t>& to_table, int64_t first, int64_t end) {
    return Begin(codec, from_table, to_table, first, end).Wait();
  }

  struct Moving {
    std::future<KvParcelOutcome> sent;
    std::future<absl::Status> arrived;
    KvOutbox::ParcelId id = 0;
    std::string ticket;

    Came Wait() {
      REQUIRE(sent.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
      REQUIRE(arrived.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
      return {sent.get(), arrived.get()};
    }
  };
  Moving Begin(v1::KvCodec codec, const std::vector<int32_t>& from_table,
               const std::vector<int32_t>& to_table, int64_t first, int64_t end) {
    Moving moving;
    KvPartRoom room;
    room.place = {to_.pool, to_.pool.share, codec, to_table, first, end};
    auto arrived = std::make_shared<std::promise<absl::Status>>();
    moving.arrived = arrived->get_future();
    room.done = [arrived](const absl::Status& status) { arrived->set_value(status); };
    KvParcel parcel;
    moving.ticket = inbox_->Expect(std::move(room));
    parcel.route.set_ticket(moving.ticket);
    for (const std::string& address : inbox_->addresses()) parcel.route.add_addresses(address);
    parcel.route.set_incarnation(kReceiver);
    parcel.route.mutable_part()->mutable_layers()->set_end(from_.pool.share.layers.end);
    parcel.route.mutable_part()->mutable_kv_heads()->set_end(from_.pool.share.kv_heads.end);
    parcel.pool = from_.pool;
    parcel.codec = codec;
    parcel.first = first;
    parcel.end = end;
    auto sent = std::make_shared<std::promise<KvParcelOutcome>>();
    moving.sent = sent->get_future();
    parcel.done = [sent](const KvParcelOutcome& outcome) { sent->set_value(outcome); };
    moving.id = outbox_.Open(std::move(parcel));
    const auto table = std::make_shared<const std::vector<int32_t>>(from_table);
    for (int32_t layer = 0; layer < from_.pool.share.layers.end; ++layer)
      outbox_.Add(moving.id, layer, table, end);
    return moving;
  }

  // As if the receiver's process ended and began again, but for its incarnation.
  void StartInbox() {
    inbox_.reset();
    auto started = KvInbox::Start({{"127.0.0.1:0"}, "", kReceiver, to_.coder, to_.pairs});
    REQUIRE(started.ok());
    inbox_ = *std::move(started);
  }
  KvInbox& inbox() { return *inbox_; }
  KvOutbox& outbox() { return outbox_; }

 private:
  const End to_, from_;
  std::unique_ptr<KvInbox> inbox_;
  KvOutbox outbox_;
};

}  // namespace tessera::worker

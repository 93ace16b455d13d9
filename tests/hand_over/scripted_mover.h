// Rooms and shipments of KV of one process, played by a test: what an engine asks of its mover is
// kept here, and whoever owns it lets KV arrive, or not.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/engine/scripted_executor.h"
#include "worker/engine/kv_mover.h"

namespace tessera::tests {

class ScriptedMover final : public worker::KvMover {
 public:
  using Key = worker::KvKey;

  // Room for a prompt's KV.
  struct Room {
    worker::KvPlace place;
    double lease_seconds = 0;
    double until_seconds = 0;  // the lease
    std::string ticket;
    bool failed = false;  // the engine is being told
  };
  // A prompt's KV on its way.
  struct Shipment {
    v1::KvTarget target;
    std::deque<worker::ScriptedExecutor::Pushed> pieces;  // computed, not moved
    bool connected = false;
    int64_t moved = 0;  // token behind the last one
    double began_seconds = 0;
    double progress_seconds = 0;
    double arrived_seconds = -1;
    double budget_tokens = 0;  // that the way has time for
  };
  struct Hooks {
    std::function<double()> now_seconds;
    // Of a room that was opened: its ticket, and what its engine hears later.
    std::function<std::string(const Key& key)> ticket;
    std::function<void(const Key& key, const v1::KvTarget& target)> expected;
    // The connection of one ends.
    std::function<void(const Key& key, const Shipment& shipment)> dropped;
  };

  explicit ScriptedMover(Hooks hooks) : hooks_(std::move(hooks)) {}
  void SetListener(worker::KvMoverListener*) override {}
  void Expect(const worker::KvPlace& place, const std::vector<kvcache::KvShare>& senders,
              double lease_seconds) override {
    REQUIRE(senders.size() == 1);
    const std::string ticket = hooks_.ticket(place.key);
    const double until = hooks_.now_seconds() + lease_seconds;
    REQUIRE(rooms.emplace(place.key, Room{place, lease_seconds, until, ticket}).second);
    v1::KvTarget target;
    target.set_ticket(ticket);
    target.set_first_token(static_cast<int32_t>(place.first));
    hooks_.expected(place.key, target);
  }
  void Forget(const Key& key) override { rooms.erase(key); }
  void Send(const Key& key, const v1::KvTarget& target) override {
    Shipment& shipment = shipments[key];
    REQUIRE(shipment.target.ticket().empty());
    shipment.target = target;
    shipment.moved = target.first_token();
    shipment.began_seconds = shipment.progress_seconds = hooks_.now_seconds();
  }
  void Drop(const Key& key) override {
    const auto found = shipments.find(key);
    if (found == shipments.end()) return;
    const Shipment shipment = std::move(found->second);
    shipments.erase(found);
    hooks_.dropped(key, shipment);
  }

  std::map<Key, Room> rooms;
  std::map<Key, Shipment> shipments;

 private:
  const Hooks hooks_;
};

}  // namespace tessera::tests

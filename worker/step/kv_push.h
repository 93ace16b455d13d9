// KV of a step that goes to other replicas while the step runs.
//
// A leader says with each step which tokens' KV is complete after it (StepWork::pushes), every
// worker of its replica hands on its part of them, layer by layer. worker/transfer sends it;
// tests take it by hand.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "proto/worker.pb.h"
#include "worker/model/model.h"
#include "worker/step/step_arrays.h"

namespace tessera::worker {

// v1::KvPush of proto/worker.proto. Borrows the target until the step has come back.
struct KvPush {
  uint64_t submission_id = 0;
  uint32_t attempt = 0;
  int32_t sequence = 0;  // index in the step
  int64_t first = 0;     // tokens [first, end) of it
  int64_t end = 0;
  int64_t prompt_tokens = 0;
  const v1::KvTarget* target = nullptr;
  int32_t exchange = -1;  // place of its states behind the last row (state_exchange.h); -1: none
};

// Takes one worker's part of the pushes of its steps, one step at a time.
//
// Thread rule: Begin on the thread that runs steps, OnLayerWritten on any one, between two Begins.
// Neither waits for a peer. The blocks stay as they are until the leader lets go of the sequence
// (KvMover::Drop, worker/engine/kv_mover.h), also where a step fails.
class KvSender : public KvWriteListener {
 public:
  // A step whose pushes are these begins; not called for a step without any.
  virtual void Begin(std::span<const KvPush> pushes, const StepArrays& arrays) = 0;
  // Behind the last layer of such a step: states are where its pushes say.
  virtual void OnStatesSaved() {}
};

// A worker's part in what its leader says of KV (v1::KvNote).
//
// Thread rule: one thread, that which runs the worker's steps. Destroyed, it answers nothing more.
class KvMemberPart {
 public:
  virtual ~KvMemberPart() = default;
  // InvalidArgument: a note that no leader sends.
  virtual absl::Status Take(const v1::KvNote& note) = 0;
};

// How the leader of a replica reaches its other workers: notes go with the steps, in one order.
class KvNotes {
 public:
  using Listener = std::function<void(int peer, const v1::KvNote& note)>;

  virtual ~KvNotes() = default;
  // To the worker that is number `peer` in ConfigureRequest.peers, on the thread that begins steps.
  // One that is lost breaks the replica, and the steps say so.
  virtual void Send(int peer, const v1::KvNote& note) = 0;
  // Called on another thread. Null: nobody is called when this returns.
  virtual void SetListener(Listener listener) = 0;
};

}  // namespace tessera::worker

// Plans the next step of a lane and builds it: which sequences run (scheduler/batcher.h), their
// blocks, rows, and the tokens to draw and score. It runs nothing.
//
// A step: Plan, then Schedule (sequences go waiting -> running, running -> waiting or ended), then
// Fill; each once, in this order. Between two of them nothing else changes the table or the memory.
//
// Thread rule: one thread (the engine's). Borrows the table, the memory and the load, whose
// counters of preemptions and prefix hits it keeps.
#pragma once

#include <cstdint>
#include <vector>

#include "kvcache/prefix_index.h"
#include "proto/worker.pb.h"
#include "scheduler/answer_lengths.h"
#include "scheduler/batcher.h"
#include "worker/drafts/draft_lengths.h"
#include "worker/engine/engine_admission.h"
#include "worker/engine/engine_step.h"
#include "worker/engine/kv_memory.h"
#include "worker/engine/sequence_table.h"
#include "worker/engine/state_keeper.h"
#include "worker/engine/token_events.h"

namespace tessera::worker {

class StepBuilder {
 public:
  StepBuilder(const EngineOptions& options, SequenceTable* table, KvMemory* memory,
              v1::EngineLoad* load);

  // What the batcher chooses for `lane` behind its steps in flight. Changes nothing else.
  const scheduler::StepPlan& Plan(int lane);
  // Carries the plan out: sequences give their blocks back, are admitted, and get room for their
  // rows, which are left in step->scheduled: sequences of one row first. Those that have outgrown
  // the pool end, with events. True: some wait for window blocks, which this lane's step in flight
  // or other lanes hold. Nothing is left where all of them wait or gave way.
  bool Schedule(int lane, double now_seconds, EngineStep* step, TokenEvents* events);
  // Arrays and requests of what is scheduled; everything but the pushes. Not sealed.
  void Fill(EngineStep* step) const;

  // An answer ended by itself: later plans expect the others to be as long.
  void NoteAnswer(int64_t tokens) { answers_.Note(tokens); }
  // A step came back: of a list of drafts in it, the first `accepted` of `tried` stood; or it had
  // no prompts, and took so long. Later plans have as many drafts as pay.
  void NoteDrafts(int64_t tried, int64_t accepted) { lengths_.NoteList(tried, accepted); }
  void NoteStep(int64_t rows, double seconds) { lengths_.NoteStep(rows, seconds); }

 private:
  int64_t ExpectedTokens(const Sequence& sequence) const;
  void TakeSnapshots(int lane);
  // The tokens to try behind those of `sequence`, none of whose rows is in flight, in a step that
  // has `so_far` and gets them.
  void Draft(Sequence* sequence, DraftedStep* so_far, std::vector<int32_t>* drafts) const;
  int64_t WindowRoom() const;
  bool GrowWindows(int lane, EngineStep* step, TokenEvents* events);
  void GiveBack(int lane, EngineStep* step, TokenEvents* events);
  void DropDrafts(EngineStep::Scheduled* scheduled) const;
  // How many drafts a head is to propose behind the step; -1: nobody drafts any more.
  int64_t WantedDrafts(const EngineStep& step) const;
  void Admit(int lane, Sequence* sequence, size_t waiting, double now_seconds);
  static void AddLogitRows(EngineStep* step);
  void AddRequests(EngineStep* step) const;
  void AddHistory(const EngineStep::Draw& draw, EngineStep* step, SampleRequest* sample) const;
  void AddBans(const EngineStep::Draw& draw, EngineStep* step, SampleRequest* sample) const;
  // While the step's forward pass runs, which none of it waits for.
  void MakeMasks(EngineStep* step) const;
  void MakeMask(const EngineStep::Draw& draw, std::vector<int32_t>* mask,
                SampleRequest* sample) const;

  const EngineOptions options_;
  const scheduler::BatchLimits lane_limits_;
  SequenceTable& table_;
  KvMemory& memory_;
  const StateKeeper states_;
  v1::EngineLoad& load_;
  scheduler::AnswerLengths answers_;  // that ended by themselves
  DraftLengths lengths_;

  // Parts of the plan in hand; members so that their memory is reused.
  std::vector<scheduler::RunningSequence> running_;
  std::vector<std::vector<int32_t>> drafts_;  // of running_
  std::vector<scheduler::GrowingSequence> beside_;
  std::vector<scheduler::WaitingSequence> waiting_;
  std::vector<kvcache::PrefixMatch> matches_;  // of waiting_
  std::vector<std::vector<int64_t>> stops_;    // likewise (StateKeeper::StopsOf)
  std::vector<Sequence*> decided_;             // whom the plan names, while it is carried out
  scheduler::StepPlan plan_;
};

}  // namespace tessera::worker

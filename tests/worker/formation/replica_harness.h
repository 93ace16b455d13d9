// A replica of several workers in one process: every worker is set up by the real code on a thread
// and a device of its own, a CPU or the emulated GPU, joined by link pairs, and driven as a
// coordinator would drive it. The same with one worker is what any layout is held against.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/cuda/driver/nccl_table.h"
#include "kernels/device.h"
#include "proto/worker.pb.h"
#include "worker/engine/engine_setup.h"
#include "worker/transfer/kv_transport.h"

namespace tessera::worker {

struct StageLayout {
  int64_t layers = 0;
  int width = 1;
  std::vector<double> fractions = {};  // of its ranks; empty: they hold even parts
};

struct ReplicaOptions {
  std::vector<StageLayout> stages;  // empty: one worker holds everything
  v1::DataType weight_dtype = v1::DATA_TYPE_FLOAT32;
  v1::DataType kv_dtype = v1::DATA_TYPE_FLOAT32;                // or int8, fp8
  std::vector<kernels::Isa> isas = {kernels::Isa::kReference};  // by member, the last for the rest
  std::set<int>
      inexact;         // members whose norms are off in the last bit (tests/fakes/inexact_device)
  std::set<int> gpus;  // members on the emulated GPU, which is slow
  // Of all GPUs; null: there is none. Borrowed.
  const kernels::cuda::NcclTable* nccl = nullptr;
  bool same_gpu = false;  // all have one UUID, instead of each its own
  int first_gpu = 0;      // the UUIDs count from here
  std::string nccl_version = "2.28.9";
  bool maps_sums = true;  // of GPUs: small sums of ranks meet in memory that they map
  int64_t sum_bytes = 0;  // that one call of theirs takes; 0: as many as it can
  int32_t max_batched_tokens = 64;
  int32_t micro_batches = 0;            // steps in flight; 0: one per stage
  int32_t kv_blocks = 64;               // of the leader; each member behind it has one more
  int64_t state_cache_bytes = 1 << 20;  // of each member; 0: prompts' states are not kept
  bool prefix_cache = true;
  double close_after_seconds = 60;            // longest wait of a test
  bool moves_kv = false;                      // over TCP, or NCCL, with other replicas
  std::optional<KvTransport> kv_transport;    // that it insists on
  double kv_wait_seconds = 10;                // for a piece to be taken
  v1::KvCodec kv_codec = v1::KV_CODEC_RAW;    // in which it lets KV come
  DraftSourceFactory draft_source = nullptr;  // null: nothing is drafted, or by the model's head
  bool head_drafts = false;                   // the model's head drafts
  std::string draft_model = "";               // folder of the model that drafts; empty: none does
};

// The events of one choice, added up.
struct ChoiceEvents {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;                       // of `tokens`
  std::vector<v1::PositionLogprobs> token_logprobs;  // the same with what else was asked for
  std::vector<v1::PositionLogprobs> prompt_logprobs;
  int32_t cached_tokens = 0;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  v1::KvTransfer kv_transfer;
  std::string error;
};

class PlannedReplica {
 public:
  static constexpr int32_t kBlockTokens = 8;

  // Fails the test where a member cannot be set up.
  PlannedReplica(const std::string& model_folder, const ReplicaOptions& options);
  ~PlannedReplica();

  int members() const { return static_cast<int>(members_.size()); }
  void Submit(v1::Submit submit);
  void Cancel(uint64_t submission_id);
  // Room for the prompt of `submit`, which workers that hold `ready` compute.
  v1::Reserved Reserve(const v1::Submit& submit, const v1::WorkerReady& ready);
  // Takes no replies, as a session without credit, until it is called with false.
  void HoldReplies(bool hold);
  // Waits until every choice that was submitted has ended or the session was closed; returns the
  // events of each, by submission and choice.
  std::map<std::pair<uint64_t, int32_t>, ChoiceEvents> WaitAll();
  // Waits for the session's end. OK: it did not end in time.
  absl::Status WaitClosed();
  // Ends a member as if its process died: its links break.
  void Kill(int member);
  // Ends what is left and forms the replica again in a new epoch, with a new session and the shares
  // that the members have loaded.
  void Reform();
  v1::EngineLoad load() const;
  const v1::WorkerReady& ready(int member) const;
  // What the member's steps computed so far, warm-up included.
  double busy_seconds(int member) const;
  // How often it read its weights.
  int loads(int member) const;
  // Over its bulk links, warm-up and frame headers included.
  int64_t bulk_bytes_sent(int member) const;

 private:
  struct Worker;
  class Sink;
  class PairTable;

  void Form();
  absl::Status SetUp(int member, PairTable& pairs, const std::function<bool()>& cancelled);
  void End();

  const ReplicaOptions options_;
  std::vector<v1::ConfigureRequest> requests_;  // by member, as of the newest epoch
  std::vector<std::unique_ptr<Worker>> members_;
  std::shared_ptr<Sink> sink_;
  int64_t choices_ = 0;  // submitted in this epoch
};

}  // namespace tessera::worker

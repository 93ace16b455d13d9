// This coordinator's part among several: takes part in the election all the time, and keeps in the
// store what the next leader needs while this one leads.
//
// Thread rule: thread-safe. One thread of its own talks to the store; nothing else waits for it but
// Resign, for at most a few seconds.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "coordinator/spare/election.h"
#include "coordinator/spare/leader_store.h"

namespace tessera::coordinator {

struct LeadershipOptions {
  std::string prefix;        // of the store's keys, with a slash at its end
  ElectionOptions election;  // without its key
  double step_seconds = 0.2;
  std::function<double()> now_seconds;  // monotonic
};

class Leadership {
 public:
  using Standing = Election::Standing;
  using Values = std::map<std::string, std::string>;

  Leadership(LeadershipOptions options, std::unique_ptr<LeaderStore> store);
  ~Leadership();

  Standing standing() const;
  uint64_t term() const;         // of this one's
  void HearTerm(uint64_t term);  // a worker obeys a leader of it
  std::string leader() const;    // the value of whoever leads; empty: not known
  std::string trouble() const;   // of the store, in words; empty: none
  // What the leader before has kept: whole once this one leads.
  Values kept() const;
  // What the next leader finds: these values and no others. Written where they have changed, soon.
  void Keep(Values values);
  // Another one may lead at once.
  void Resign();

 private:
  void Run();
  void Step();
  // Both with what the store has, before this one is said to lead. False: it does not answer.
  bool ReadTerm();
  bool ReadKept();
  absl::Status WriteKept(const Values& wanted);
  void NoteTerm();

  const LeadershipOptions options_;
  const std::unique_ptr<LeaderStore> store_;
  Election election_;          // of our thread, and of Resign after it
  Values stored_;              // likewise: what the store has
  uint64_t read_created_ = 0;  // likewise: of this one's key, when stored_ was read
  uint64_t noted_term_ = 0;    // likewise: that the store has, for the next leader
  std::string keep_trouble_;   // likewise: why the values were not kept last

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  Standing standing_ = Standing::kSpare;
  uint64_t term_ = 0, heard_term_ = 0;
  std::string leader_, trouble_;
  Values kept_, wanted_;
  bool keeps_ = false;  // `wanted_` is what shall be kept
  std::thread thread_;
};

}  // namespace tessera::coordinator

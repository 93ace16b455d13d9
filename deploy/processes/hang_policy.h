// When a worker that runs but does not answer hangs, and is of no more use than one that ended.
//
// The coordinator takes a silent worker for lost soon. Its process is left alone for some time
// more, since a machine that sleeps or swaps is silent too.
//
// Thread rule: one thread.
#pragma once

namespace tessera::deploy {

class HangPolicy {
 public:
  // A worker that stays lost for this long hangs.
  static constexpr double kMaxLostSeconds = 10;
  // So does one that was never heard of this long after its start, which takes a moment itself.
  static constexpr double kMaxStartSeconds = 120;

  // What the coordinator says of the worker at `now_seconds`: whether it is lost, and how long ago
  // its newest heartbeat came (infinity: it knows none). Its process has run for `lived_seconds`; a
  // heartbeat older than that was its predecessor's, and says nothing of it. True: it hangs.
  bool OnStatus(bool lost, double silent_seconds, double lived_seconds, double now_seconds);

 private:
  double lost_since_seconds_ = -1;  // negative: it is not lost
};

}  // namespace tessera::deploy

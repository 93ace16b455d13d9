// A stream that can run at once what it was given before: a step of decoding is hundreds of
// launches with the same arguments as the step before (CUDA graphs). Stream::repeating gives it.
//
// Thread rule: that of Stream. Work that is recorded is the device's alone: no copies to or from
// the host, no host work. Its memory must be what it was whenever it is run.
#pragma once

#include <array>
#include <cstdint>

namespace tessera::kernels {

class GraphStream {
 public:
  // What decides the arguments of everything that is recorded: addresses, extents. Equal keys stand
  // for equal work.
  using Key = std::array<uint64_t, 20>;

  // What is kept: this many at most, this many now, and the memory of the device that these took,
  // as its driver counts it.
  struct Kept {
    int64_t most = 0, count = 0, bytes = 0;
  };

  virtual ~GraphStream() = default;
  // Enqueues what is kept under the key. False: nothing is, and nothing was enqueued.
  virtual bool Replay(const Key& key) = 0;
  // What is enqueued from here to EndRecording runs as ever; it is kept when it comes for the
  // second time, as far as there is room, if it is `whole`: all that the key stands for.
  virtual void BeginRecording(const Key& key) = 0;
  virtual void EndRecording(bool whole) = 0;
  // After Synchronize.
  virtual Kept kept() const = 0;

  // The largest sum or broadcast, in bytes, of ranks whose devices make it as work of this stream
  // alone, so that it may be recorded. 0, as at first: hosts take part.
  int64_t group_call_bytes() const { return group_call_bytes_; }
  void set_group_call_bytes(int64_t bytes) { group_call_bytes_ = bytes; }

 private:
  int64_t group_call_bytes_ = 0;
};

}  // namespace tessera::kernels

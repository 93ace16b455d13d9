// Keeps gRPC's callback queue from falling asleep.
//
// The threads that run the callbacks of gRPC 1.51 (CompletionQueue::CallbackAlternativeCQ) wait 1 s
// for an event and, where none came, sleep for 100 ms, in which a call that arrives has to wait. An
// event at least every 300 ms keeps one of them awake: whoever takes an event waits 1 s for the
// next.
//
// Thread rule: one thread. Cost: some microseconds per event.
#pragma once

#include <grpcpp/generic/generic_stub.h>

namespace tessera {

class CallbackQueueWaker {
 public:
  CallbackQueueWaker();
  // Gives the queue an event: a call that fails before it leaves the process. Does not wait for it.
  void Wake();

 private:
  grpc::GenericStub stub_;
};

}  // namespace tessera

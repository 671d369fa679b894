#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

// The processes that compute one model together, each with some of its ranks, on one host or on
// several. Process 0 leads: it schedules, samples and answers; the others follow.
//
// Every function is collective: all processes call the same ones in the same order, with sizes that
// agree, unless it says something else. Sizes may be 0 (a success that is told with Together is); a
// pointer to 0 bytes may be anything.
//
// Thread rule: collective calls come from any thread, of a world and its parts one at a time. Send
// and Receive run beside them and beside each other, on threads of their own.
//
// Ending it is collective, too: it may wait for the others. All parts end before their world does,
// each while no thread is in a call of it. The world ends on the thread that joined (LeaveWorld); a
// process that fails does not end it, and calls exit() or dies instead.
//
// There is no error to return: if a process or the link to it is gone, nothing can be computed any
// more. The implementation then ends this process with a sentence on standard error and an exit
// code that is not 0, and sees to it that all others end like that within 10 s of the loss
// (docs/hosts.md), even if they wait in a call, or are on a host whose link is gone without a word
// (Heartbeat). MPI ends the others if it is asked to; a transport that has no such call does with
// links whose end each process notices.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual size_t process() const = 0;
  virtual size_t processes() const = 0;

  // all: [processes][bytes], what each process has at `mine`, in their order; `mine` does not lie
  // in it. The others come at once, so waiting threads may spin.
  virtual void Gather(const void* mine, size_t bytes, void* all) = 0;
  // The same, to process 0 alone; of process p there are bytes[p], some of them maybe 0. `all` is
  // unused elsewhere.
  virtual void GatherAtLeader(const void* mine, const std::vector<size_t>& bytes, void* all) = 0;
  // Writes process 0's data to all others. These may wait for hours, and sleep meanwhile.
  virtual void Broadcast(void* data, size_t bytes) = 0;

  // From one process to another, which must receive as much: not collective, and for any number of
  // threads at a time if each has a channel (0 to 1,000) of its own. Messages of a channel arrive
  // in the order in which they were sent. Send may wait until it is received; Receive may wait for
  // long, and then sleeps.
  virtual void Send(size_t process, int channel, const void* data, size_t bytes) = 0;
  virtual void Receive(size_t process, int channel, void* data, size_t bytes) = 0;

  // The processes that name the same part, in their order, as a world of their own.
  virtual std::unique_ptr<Communicator> Part(int part) = 0;
};

// The texts of all processes, in their order.
std::vector<std::string> GatherTexts(Communicator& world, const std::string& mine);
// Process 0's text, in all.
std::string BroadcastText(Communicator& world, const std::string& text);
uint64_t LeastOf(Communicator& world, uint64_t mine);
uint64_t SumOf(Communicator& world, uint64_t mine);
// Returns once all processes have called it.
void Barrier(Communicator& world);

// Success if all processes succeeded, else the error of the first that did not, which then all of
// them return. Without a world (null): `mine`.
Status Together(Communicator* world, Status mine);

}  // namespace pinion

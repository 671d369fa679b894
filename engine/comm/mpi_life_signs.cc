// Signs of life by MPI: messages without content.

#include "engine/comm/mpi_life_signs.h"

// Without the C++ interface that MPI 3 has removed.
#define OMPI_SKIP_MPICXX
#include <mpi.h>

#include <vector>

namespace pinion {
namespace {

constexpr int kTag = 1;

class MpiLifeSigns final : public LifeSigns {
 public:
  MpiLifeSigns() {
    // Their own world, so that they meet no call of a step.
    MPI_Comm_dup(MPI_COMM_WORLD, &world_);
    int process = 0, processes = 1;
    MPI_Comm_rank(world_, &process);
    MPI_Comm_size(world_, &processes);
    for (int other = 0; other < processes; ++other)
      if (other != process) peers_.push_back({static_cast<size_t>(other)});
    for (Peer& peer : peers_) Expect(peer);
  }

  // Messages that are under way to a process that ends as well are not waited for.
  ~MpiLifeSigns() override {
    for (Peer& peer : peers_) {
      MPI_Cancel(&peer.incoming);
      MPI_Request_free(&peer.incoming);
      if (peer.outgoing != MPI_REQUEST_NULL) MPI_Request_free(&peer.outgoing);
    }
  }

  std::vector<size_t> watched() const override {
    std::vector<size_t> all;
    for (const Peer& peer : peers_) all.push_back(peer.process);
    return all;
  }

  // One at a time is under way to each: to a process that takes none they would pile up.
  void Send() override {
    for (Peer& peer : peers_) {
      int sent = 1;
      if (peer.outgoing != MPI_REQUEST_NULL) MPI_Test(&peer.outgoing, &sent, MPI_STATUS_IGNORE);
      if (sent)
        MPI_Isend(nullptr, 0, MPI_BYTE, static_cast<int>(peer.process), kTag, world_,
                  &peer.outgoing);
    }
  }

  std::vector<size_t> Received() override {
    std::vector<size_t> all;
    for (Peer& peer : peers_) {
      int received = 0;
      for (MPI_Test(&peer.incoming, &received, MPI_STATUS_IGNORE); received;
           MPI_Test(&peer.incoming, &received, MPI_STATUS_IGNORE)) {
        if (all.empty() || all.back() != peer.process) all.push_back(peer.process);
        Expect(peer);
      }
    }
    return all;
  }

 private:
  struct Peer {
    size_t process = 0;
    MPI_Request outgoing = MPI_REQUEST_NULL, incoming = MPI_REQUEST_NULL;
  };

  void Expect(Peer& peer) {
    MPI_Irecv(nullptr, 0, MPI_BYTE, static_cast<int>(peer.process), kTag, world_, &peer.incoming);
  }

  MPI_Comm world_ = MPI_COMM_NULL;
  std::vector<Peer> peers_;
};

}  // namespace

std::unique_ptr<LifeSigns> MakeMpiLifeSigns() { return std::make_unique<MpiLifeSigns>(); }

}  // namespace pinion

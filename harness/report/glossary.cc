// The report's glossary, for readers who meet its terms for the first time.

#include "harness/report/facts.h"

namespace pinion::harness {

TextTable WordFacts(const Results&) {
  return {
      "Words",
      "",
      {"word", "meaning"},
      {{{"configuration",
         "a set of settings; the defaults are the configuration that runs without any flags"}},
       {{"trial",
         "one run of one configuration: started, warmed up, loaded, measured and stopped"}},
       {{"round", "one trial of every configuration still in the race, all with the same prompts"}},
       {{"fresh round",
         "a round with new prompts after the leader was chosen, to confirm or refute its lead"}},
       {{"interval",
         "the range that holds the true median with the stated confidence, from order statistics"}},
       {{"noise floor",
         "the largest difference that noise alone makes: the defaults against themselves"}},
       {{"disturbed",
         "a trial during which something else used the machine; it is marked and kept"}},
       {{"steal", "share of CPU time that the hypervisor gave to other virtual machines"}},
       {{"CPU pressure", "share of the time during which some thread waited for a CPU"}},
       {{"prefill, decode",
         "processing the prompt, many tokens per step; generating the answer, one token per step"}},
       {{"first token, TTFT", "time from sending a request to its first token"}},
       {{"per token, TPOT", "mean time of an answer's later tokens, over one request"}},
       {{"token gap, ITL", "time between two consecutive tokens of an answer"}},
       {{"client",
         "sends a request, waits for the whole answer, then sends the next (a closed loop)"}},
       {{"SLO, goodput",
         "limits on these times; the highest load at which enough requests meet all of them"}},
       {{"steady window",
         "the part of a load in which every client is busy, and none for the first time"}},
       {{"KV cache", "the keys and values of all tokens so far, which every new token reads"}},
       {{"preempted", "said of a sequence that gave up its KV cache and was computed again"}},
       {{"ISA", "the instruction set that the arithmetic uses, such as avx2 or avx512_bf16"}},
       {{"NUMA node, rank",
         "CPUs with local memory; a team of threads that holds a share of the weights"}},
       {{"Pareto front",
         "the points that no other point beats in both throughput and latency; a point is off it "
         "if "
         "another is better in both beyond the intervals of the paired differences, and possibly "
         "on "
         "it if another is measured as better in both, but within them"}}}};
}

}  // namespace pinion::harness

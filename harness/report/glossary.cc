// The report's words, for who meets them for the first time.

#include "harness/report/facts.h"

namespace pinion::harness {

TextTable WordFacts(const Results&) {
  return {
      "Words",
      "",
      {"word", "meaning"},
      {{{"configuration", "a set of settings; the defaults are what runs without any flag"}},
       {{"trial", "one configuration started, warmed up, loaded, measured and stopped, once"}},
       {{"round", "every configuration still in the race once, all with the same prompts"}},
       {{"fresh round",
         "a round after the leader was chosen, with new prompts, to confirm or refute it"}},
       {{"interval", "where the true median lies with the stated confidence, by order statistics"}},
       {{"noise floor",
         "the difference that noise alone makes here: the defaults against themselves"}},
       {{"disturbed", "a trial beside which something else used the machine; marked, kept"}},
       {{"steal", "share of CPU time that the hypervisor gave to other virtual machines"}},
       {{"CPU pressure", "share of the time in which something waited for a CPU"}},
       {{"prefill, decode",
         "computing a prompt, many tokens a step; and its answer, a token a step"}},
       {{"first token, TTFT", "time from sending a request to its first token"}},
       {{"per token, TPOT", "mean time of an answer's later tokens, over one request"}},
       {{"token gap, ITL", "time between two consecutive tokens of an answer"}},
       {{"client", "asks, waits for the whole answer, asks again (a closed loop)"}},
       {{"SLO, goodput", "limits on these times; requests per second that meet all of them"}},
       {{"KV cache", "keys and values of all tokens so far, which every new token reads"}},
       {{"preempted", "a sequence that gave its KV cache up and was computed again"}},
       {{"ISA", "the instruction set that the arithmetic uses, as avx2 or avx512_bf16"}},
       {{"NUMA node, rank",
         "CPUs with memory of their own; a team of threads with a share of the weights"}},
       {{"Pareto front", "who is not beaten in throughput and latency at once"}}}};
}

}  // namespace pinion::harness

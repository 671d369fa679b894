#pragma once

#include <string_view>

// One function for each kind of input that Pinion reads from strangers. It returns for any bytes; a
// promise that its reader breaks is a failed CHECK. driver.cc makes a libFuzzer binary of each,
// corpus_test.cc runs all of them over tests/fuzz/corpus.
namespace pinion::fuzz {

void Request(std::string_view body);      // completions, /tokenize, /detokenize
void Chat(std::string_view body);         // chat completions, up to the template's input
void Tokenizer(std::string_view json);    // tokenizer.json
void Safetensors(std::string_view file);  // a file, and the JSON of a header
void Gguf(std::string_view file);         // its header, and what is made of it
void GgufModel(std::string_view parts);   // one file or several: the spec, all tensors' values
void Http(std::string_view bytes);        // what a client sends to the server
void Output(std::string_view text);       // what a model wrote: reasoning and calls in it
void Load(std::string_view bytes);        // what a server sends to the load generator: SSE, events
void Sweep(std::string_view json);        // a sweep's definition
void Profile(std::string_view json);

}  // namespace pinion::fuzz

#include "engine/serve/field_table.h"

#include <algorithm>
#include <array>

namespace pinion {
namespace field_table {  // keeps short names for APIs and schemas local

using enum Api;

constexpr ApiSet kLlamas = kLlama | kInfill;
constexpr ApiSet kOpenAi = kCompletions | kChat;
constexpr ApiSet kTexts = kOpenAi | kMessages | kResponses | kLlamas;
constexpr ApiSet kVectors = kEmbeddings | kPooling;
constexpr ApiSet kScores = kScore | kRerank;
constexpr ApiSet kOneText = kVectors | kClassify;  // each a text, or a conversation
constexpr ApiSet kPools = kVectors | kScores | kClassify | kCohereEmbed | kLlamaEmbed;
// Their answers depend on the prompt alone. People send them the whole body of a chat, or of a
// Message (the last).
constexpr ApiSet kOfChats = kTokenize | kApplyTemplate;
constexpr ApiSet kPrompts = kOfChats | kCountTokens;
constexpr ApiSet kTemplated = kChat | kMessages | kResponses | kPrompts | kOneText;
constexpr ApiSet kAllButResponses = kOpenAi | kMessages | kLlamas | kPools | kPrompts | kDetokenize;
constexpr ApiSet kAll = kAllButResponses | kResponses;
constexpr ApiSet kAllButOpenAi = kMessages | kResponses | kLlamas | kPools | kPrompts | kDetokenize;
constexpr ApiSet kNone;

constexpr const char* kAny = "{}";
constexpr const char* kBool = R"({"type":"boolean"})";
constexpr const char* kInt = R"({"type":"integer"})";
constexpr const char* kNumber = R"({"type":"number"})";
constexpr const char* kString = R"({"type":"string"})";
constexpr const char* kObject = R"({"type":"object"})";
constexpr const char* kStrings = R"({"type":"array","items":{"type":"string"}})";
constexpr const char* kObjects = R"({"type":"array","items":{"type":"object"}})";
constexpr const char* kTokenIds = R"({"type":"array","items":{"type":"integer","minimum":0}})";
constexpr const char* kBoolOrInt = R"({"anyOf":[{"type":"boolean"},{"type":"integer"}]})";
constexpr const char* kStringOrObject = R"({"anyOf":[{"type":"string"},{"type":"object"}]})";
constexpr const char* kStringOrStrings =
    R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]})";
constexpr const char* kStringOrObjects =
    R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object"}}]})";
constexpr const char* kPrompt =  // one or several, as text or as token ids
    R"({"anyOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"string"}},)"
    R"({"type":"array","minItems":1,"items":{"type":"integer","minimum":0}},)"
    R"({"type":"array","minItems":1,"items":{"type":"array","items":{"type":"integer","minimum":0}}}]})";
constexpr const char* kDocuments =  // one or several
    R"({"anyOf":[{"type":"string"},{"type":"object","required":["text"]},{"type":"array",)"
    R"("minItems":1,"items":{"anyOf":[{"type":"string"},{"type":"object","required":["text"]}]}}]})";
constexpr const char* kSomeMessages =
    R"({"type":"array","minItems":1,"items":{"type":"object","required":["role"],)"
    R"("properties":{"role":{"type":"string"}}}})";
constexpr const char* kItems =
    R"({"anyOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"object"}}]})";
constexpr const char* kFiles =
    R"({"type":"array","items":{"anyOf":[{"type":"string"},{"type":"object","required":["text"]}]}})";
constexpr const char* kStringMap = R"({"type":"object","additionalProperties":{"type":"string"}})";
constexpr const char* kJsonSchema =  // itself, or its text
    R"({"anyOf":[{"type":"object"},{"type":"boolean"},{"type":"string"}]})";
constexpr const char* kBias = R"({"type":"object","additionalProperties":{"type":"number"}})";
constexpr const char* kBiasOrPairs =
    R"({"anyOf":[{"type":"object","additionalProperties":{"type":"number"}},)"
    R"({"type":"array","items":{"type":"array","minItems":2,"maxItems":2}}]})";
constexpr const char* kFormat =
    R"({"type":"object","required":["type"],"properties":{"type":{"type":"string",)"
    R"("enum":["text","json_object","json_schema","structural_tag"]}}})";
constexpr const char* kTyped =
    R"({"type":"object","required":["type"],"properties":{"type":{"type":"string"}}})";
constexpr const char* kStringOrTyped =
    R"({"anyOf":[{"type":"string"},{"type":"object","required":["type"],)"
    R"("properties":{"type":{"type":"string"}}}]})";
constexpr const char* kEncoding =
    R"({"type":"string","enum":["float","base64","bytes","bytes_only"]})";
constexpr const char* kElement =
    R"({"type":"string","enum":["float32","float16","bfloat16","fp8_e4m3","fp8_e5m2"]})";
constexpr const char* kEndianness = R"({"type":"string","enum":["native","little","big"]})";
constexpr const char* kVectorTypes =
    R"({"type":"array","items":{"type":"string","enum":["float","base64","binary","ubinary"]}})";
constexpr const char* kSomeStrings = R"({"type":"array","minItems":1,"items":{"type":"string"}})";
constexpr const char* kPadding = R"({"type":"string","enum":["do_not_pad"]})";
constexpr const char* kTruncate = R"({"type":"string","enum":["NONE","START","END"]})";
constexpr const char* kSide = R"({"type":"string","enum":["left","right"]})";
constexpr const char* kRightSide = R"({"type":"string","enum":["right"]})";
constexpr const char* kTruncation = R"({"type":"string","enum":["auto","disabled"]})";

constexpr auto kFields = std::to_array<Field>({
    {"access_programs", kAny, kNone, kResponses},  // of OpenAI's own models
    {"activation", kBool, kOneText | kScores},
    {"adaptive_decay", kAny, kNone, kLlamas},  // of a sampler that is off
    {"adaptive_target", kNumber, kLlamas},
    {"add_generation_prompt", kBool, kChat | kOfChats | kOneText},
    {"add_special", kBool, kTokenize},  // llama-server's names of this and of the text
    {"add_special_tokens", kBool, kTexts | kPrompts | kVectors | kClassify},
    {"allowed_token_ids", kTokenIds, kTexts, kPrompts},
    {"anthropic_beta", kAny, kNone, kMessages | kCountTokens},  // what proxies put into bodies
    {"anthropic_version", kAny, kNone, kMessages | kCountTokens},
    {"background_options", kAny, kNone, kResponses},
    {"bad_words", kStrings, kTexts, kPrompts},
    {"best_of", kInt, kOpenAi, kOfChats},
    {"betas", kAny, kNone, kMessages | kCountTokens},
    {"billing_policy", kAny, kNone, kMessages | kCountTokens},
    {"cache_control", kAny, kNone, kMessages | kCountTokens},  // all prompts are cached
    {"cache_prompt", kAny, kNone, kLlamas},                    // likewise
    {"cache_salt", kString, kTexts | kPools, kPrompts},
    {kChatTemplate, kString, kTemplated},
    {"chat_template_kwargs", kObject, kTemplated},
    {"compaction", kAny, kNone, kCountTokens},
    {"content", kPrompt, kLlamaEmbed, kNone, kLlamaEmbed},
    {"content", kString, kTokenize},
    {"context_management", kAny, kNone,
     kMessages | kCountTokens},  // what may be dropped: nothing is
    {"continue_final_message", kBool, kChat | kOfChats | kOneText},
    {"data_1", kDocuments, kScore},
    {"data_2", kDocuments, kScore},
    {"diagnostics", kAny, kNone, kMessages},
    {"dimensions", kInt, kVectors},
    {"documents", kObjects, kChat | kMessages | kResponses | kPrompts},
    {"documents", kDocuments, kScores, kNone, kRerank},
    {"dry_allowed_length", kAny, kNone, kLlamas},
    {"dry_base", kAny, kNone, kLlamas},
    {"dry_multiplier", kNumber, kLlamas},
    {"dry_penalty_last_n", kAny, kNone, kLlamas},
    {"dry_sequence_breakers", kAny, kNone, kLlamas},
    {"dynatemp_exponent", kAny, kNone, kLlamas},
    {"dynatemp_range", kNumber, kLlamas},
    {"early_stopping", kAny, kNone, kAll},  // of beam search
    {"echo", kBool, kCompletions},
    {"echo", kBool, kChat, kOfChats},  // only what the assistant has said last
    {"embd_normalize", kInt, kLlamaEmbed},
    {"embed_dtype", kElement, kVectors},
    {"embedding_types", kVectorTypes, kCohereEmbed},
    {"encoding_format", kEncoding, kVectors},
    {"endianness", kEndianness, kVectors},
    {"fallback_credit_token", kAny, kNone, kMessages},
    {"fallbacks", kAny, kNone, kMessages},  // models to ask after a refusal
    {"frequency_penalty", kNumber, kTexts, kPrompts},
    {"grammar", kString, kLlamas},
    {"guided_choice", kStrings, kTexts, kPrompts},
    {"guided_decoding_backend", kAny, kNone, kAll},
    {"guided_grammar", kString, kTexts, kPrompts},
    {"guided_json", kJsonSchema, kTexts, kPrompts},
    {"guided_regex", kString, kTexts, kPrompts},
    {"guided_whitespace_pattern", kAny, kNone, kPrompts},
    {"id_slot", kAny, kNone, kLlamas},  // sequences have no slots
    {"ignore_eos", kBool, kTexts, kPrompts},
    {"image", kAny, kNone, kResponses},  // how images in the input are kept
    {"include", kStrings, kResponses},
    {"include_reasoning", kBool, kChat | kResponses, kOfChats},
    {"include_stop_str_in_output", kBool, kTexts, kPrompts},
    {"inference_geo", kAny, kNone, kMessages},
    {"input", kPrompt, kOneText},
    {"input", kItems, kResponses, kNone, kResponses},
    {"input_extra", kFiles, kInfill},
    {"input_prefix", kString, kInfill, kNone, kInfill},
    {"input_suffix", kString, kInfill, kNone, kInfill},
    {"input_type", kString, kCohereEmbed},
    {"instruction", kString, kScores},
    {"instructions", kString, kResponses},
    {"items", kDocuments, kScore},
    {"json_schema", kJsonSchema, kLlamas},
    {"length_penalty", kNumber, kOpenAi, kAllButOpenAi},  // of beam search
    {"logit_bias", kBias, kOpenAi | kMessages | kResponses, kPrompts},
    {"logit_bias", kBiasOrPairs, kLlamas},
    {"logprobs", kBoolOrInt, kOpenAi, kOfChats},
    {"max_completion_tokens", kInt, kChat, kOfChats},
    {"max_output_tokens", kInt, kResponses},
    {"max_tokens", kInt, kOpenAi | kMessages, kPrompts, kMessages},
    {"max_tokens", kInt, kLlamas},       // also without a limit
    {"max_tokens", kInt, kCohereEmbed},  // of each text
    {"max_tokens_per_doc", kInt, kScores},
    {"max_tokens_per_query", kInt, kScores},
    {"max_tool_calls", kInt, kResponses},    // of OpenAI's own tools: shown again
    {"media_io_kwargs", kAny, kNone, kAll},  // of images and sound
    {"messages", kSomeMessages, kChat | kOfChats | kOneText, kNone, kChat | kApplyTemplate},
    {"messages", kSomeMessages, kMessages | kCountTokens, kNone, kMessages | kCountTokens},
    {"metadata", kStringMap, kResponses},  // shown again
    {"metadata", kAny, kNone, kAllButResponses},
    {"min_p", kNumber, kTexts, kPrompts},
    {"min_tokens", kInt, kTexts, kPrompts},
    {"mirostat", kNumber, kLlamas},
    {"mirostat_eta", kAny, kNone, kLlamas},
    {"mirostat_tau", kAny, kNone, kLlamas},
    {"mm_payload", kAny, kNone, kAll},
    {"mm_processor_kwargs", kAny, kNone, kAll},
    {"modalities", kStrings, kChat, kOfChats},
    {"model", kString, kAll},
    {"n", kInt, kOpenAi | kLlamas, kOfChats},
    {"n_cache_reuse", kAny, kNone, kLlamas},
    {"n_keep", kAny, kNone, kLlamas},
    {"n_predict", kInt, kLlamas},
    {"n_probs", kInt, kLlamas},
    {"normalize", kBool, kVectors},
    {"output_config", kObject, kMessages | kCountTokens},
    {"output_dimension", kInt, kCohereEmbed},
    {"padding", kPadding, kOneText | kScores},
    {"parallel_tool_calls", kBool, kChat | kResponses, kOfChats},
    {"parse_special", kBool, kTokenize},
    {"penalize_nl", kAny, kNone, kLlamas},  // llama-server does not read it any more
    {"prediction", kAny, kNone, kAll},      // a guess at the answer, to save time
    {"presence_penalty", kNumber, kTexts, kPrompts},
    {"priority", kInt, kTexts | kPools, kPrompts},
    {"prompt", kPrompt, kCompletions | kLlama, kNone, kCompletions | kLlama},
    {"prompt", kString, kInfill},  // what the answer has begun with
    {"prompt", kString, kTokenize},
    {"prompt_cache_key", kString, kResponses},
    {"prompt_cache_key", kAny, kNone, kAllButResponses},
    {"prompt_cache_options", kAny, kNone, kChat | kOfChats | kResponses},
    {"prompt_cache_retention", kString, kResponses},
    {"prompt_cache_retention", kAny, kNone, kAllButResponses},
    {"prompt_logprobs", kInt, kOpenAi, kOfChats},
    {"queries", kDocuments, kScore},
    {"query", kString, kRerank, kNone, kRerank},
    {"reasoning", kObject, kResponses},
    {"reasoning_effort", kString, kChat | kMessages | kPrompts},
    {"repeat_last_n", kInt, kLlamas},
    {"repeat_penalty", kNumber, kLlamas},
    {"repetition_penalty", kNumber, kOpenAi | kMessages | kResponses, kPrompts},
    {"request_id", kAny, kNone, kAll},
    {"response_fields", kAny, kNone, kLlamas},  // answers have all of theirs
    {"response_format", kFormat, kOpenAi | kLlamas, kOfChats},
    {"return_documents", kBool, kRerank},
    {"return_mm_kwargs", kAny, kNone, kAll},
    {"return_progress", kAny, kNone, kLlamas},
    {"return_token_ids", kBool, kOpenAi, kOfChats},
    {"return_token_offsets", kAny, kNone, kAll},  // of vLLM's render endpoints
    {"return_token_strs", kBool, kTokenize},
    {"return_tokens", kBool, kLlamas},
    {"return_tokens_as_token_ids", kBool, kOpenAi, kOfChats},
    {"routed_experts_prompt_start", kAny, kNone, kAll},
    {"safety_identifier", kString, kResponses},
    {"safety_identifier", kAny, kNone, kAllButResponses},
    {"samplers", kStringOrStrings, kLlamas},
    {"seed", kInt, kTexts, kPrompts},
    {"service_tier", kAny, kNone, kAll},
    {"session_id", kAny, kNone, kAll},
    {"skip_special_tokens", kBool, kTexts, kPrompts},
    {"slot_id", kAny, kNone, kLlamas},
    {"spaces_between_special_tokens", kBool, kTexts, kPrompts},
    {"speed", kAny, kNone, kMessages | kCountTokens},
    {"stop", kStringOrStrings, kOpenAi | kResponses | kLlamas, kOfChats},
    {"stop_sequences", kStringOrStrings, kMessages, kCountTokens},
    {"stop_token_ids", kTokenIds, kTexts, kPrompts},
    {"store", kAny, kNone, kAll},  // nothing is
    {"stream", kBool, kTexts, kPrompts},
    {"stream_interval", kAny, kNone, kAll},  // tokens in one event of a stream
    {"stream_options", kObject, kOpenAi, kOfChats | kResponses},
    {"structured_outputs", kObject, kTexts, kPrompts},
    {"suffix", kString, kCompletions},
    {"system", kStringOrObjects, kMessages | kCountTokens},
    {"t_max_predict_ms", kInt, kLlamas},
    {"t_max_prompt_ms", kAny, kNone, kLlamas},  // llama-server does not read it either
    {"task", kString, kPooling},
    {"temperature", kNumber, kTexts, kPrompts},
    {"text", kObject, kResponses},
    {"text_1", kDocuments, kScore},
    {"text_2", kDocuments, kScore},
    {"texts", kSomeStrings, kCohereEmbed, kNone, kCohereEmbed},
    {"tfs_z", kNumber, kLlamas},
    {"thinking", kTyped, kMessages | kCountTokens},
    {"thinking_token_budget", kInt, kTexts, kPrompts},
    {"timeout", kNumber, kTexts | kPools, kPrompts},
    {"timings_per_token", kAny, kNone, kLlamas},
    {"tokens", kTokenIds, kDetokenize, kNone, kDetokenize},
    {"tool_choice", kStringOrObject, kChat | kOfChats},
    {"tool_choice", kTyped, kMessages | kCountTokens},
    {"tool_choice", kStringOrTyped, kResponses},
    {"tools", kObjects, kChat | kOfChats},
    {"tools", kObjects, kMessages | kCountTokens},
    {"tools", kObjects, kResponses},
    {"top_k", kInt, kTexts, kPrompts},
    {"top_logprobs", kInt, kOpenAi, kOfChats},
    {"top_logprobs", kInt, kResponses},  // without `logprobs`
    {"top_n", kInt, kRerank},
    {"top_n_sigma", kNumber, kLlamas},
    {"top_p", kNumber, kTexts, kPrompts},
    {"truncate", kTruncate, kCohereEmbed},
    {"truncate_prompt_tokens", kInt, kTexts | kOneText | kScores},
    {"truncation", kTruncation, kResponses},
    {"truncation_side", kSide, kTexts},
    {"truncation_side", kRightSide, kOneText | kScores},
    {"typical_p", kNumber, kLlamas},
    {"use_activation", kBool, kOneText | kScores},  // the older name of `activation`
    {"use_beam_search", kBool, kOpenAi, kOfChats},
    {"user", kString, kResponses},
    {"user", kAny, kNone, kAllButResponses},
    {"user_profile_id", kAny, kNone, kMessages | kCountTokens},
    {"verbosity", kAny, kNone, kChat | kOfChats},  // a wish, which no template here knows
    {"with_pieces", kBool, kTokenize},
    {"workspace_id", kAny, kNone, kMessages | kCountTokens},
    {"xtc_probability", kNumber, kLlamas},
    {"xtc_threshold", kAny, kNone, kLlamas},
});

constexpr auto kUnsupported = std::to_array<UnsupportedField>({
    {"audio", kTexts | kPrompts, "send text"},
    {"background", kResponses,
     "this server stores no responses: wait for the answer, or let it stream"},
    {kChatTemplate, kTemplated,
     "start the server with --trust-request-chat-template, or with --chat-template FILE"},
    {kChatTemplate, kCompletions | kLlamas, "no template writes the prompt of this endpoint"},
    {"compaction", kMessages, "this server sums up no conversation: ask for that in a message"},
    {"container", kMessages, "this server runs no code: leave it out"},
    {"context_management", kResponses,
     "this server shortens no conversation: leave out its earlier items"},
    {"conversation", kResponses,
     "this server stores no responses: send all items of the conversation as 'input'"},
    {"ec_transfer_params", kTexts, "engines here hand over prompts as --prefill-replicas says"},
    {"enable_response_messages", kResponses, "POST /apply-template shows the prompt"},
    {"function_call", kTexts | kPrompts, "use tools"},
    {"functions", kTexts | kPrompts, "use tools"},
    {"grammar_lazy", kLlamas, "leave it out: a grammar holds from the answer's first token on"},
    {"guided_whitespace_pattern", kTexts,
     "leave it out: JSON has one space after a comma or a colon, and none elsewhere"},
    {"image_data", kLlamas, "send text"},
    {"images", kCohereEmbed, "send texts"},
    {"input_extra", kLlama, "it is a field of /infill"},
    {"input_prefix", kLlama, "it is a field of /infill"},
    {"input_suffix", kLlama, "it is a field of /infill"},
    {"inputs", kCohereEmbed, "send 'texts'"},
    {"kv_transfer_params", kTexts, "engines here hand over prompts as --prefill-replicas says"},
    {"logprob_token_ids", kOpenAi, "ask for the log-probabilities of more alternatives"},
    {"lora", kLlamas, "leave it out"},
    {"mcp_servers", kMessages | kCountTokens,
     "this server calls no tools: send those that you call yourself as 'tools'"},
    {"messages", kScores, "put the texts into the query and the documents"},
    {"min_keep", kLlamas, "leave it out: every sampler keeps at least the best token"},
    {"moderation", kChat | kResponses, "this server moderates nothing: leave it out"},
    {"n_indent", kLlamas, "leave it out, and break the text at its line ends"},
    {"post_sampling_probs", kLlamas, "leave it out: probabilities are those of the model"},
    {"preserved_tokens", kLlamas, "leave it out"},
    {"previous_input_messages", kResponses, "send all items of the conversation as 'input'"},
    {"previous_response_id", kResponses,
     "this server stores no responses: send the earlier items again as 'input'"},
    {"prompt", kResponses,
     "this server stores no prompts: send the text as 'instructions' or 'input'"},
    {"prompt_embeds", kCompletions, "send 'prompt'"},
    {"repetition_detection", kTexts, "use a penalty, or end the answer when it repeats itself"},
    {"return_prompt_text", kChat, "POST /apply-template shows the prompt"},
    {"return_weight_versions", kOpenAi, "leave it out: weights never change while a server runs"},
    {"thread", kMessages,
     "this server stores no conversations: send all of its messages as 'messages'"},
    {"use_beam_search", kMessages | kResponses | kLlamas | kCountTokens,
     "it is a field of /v1/completions and /v1/chat/completions"},
    {"vllm_xargs", kTexts, "no extension reads it here: leave it out"},
    {"watermarking", kTexts, "leave it out: answers have no watermarks"},
    {"web_search_options", kChat, "this server searches nothing: leave it out"},
});

constexpr bool ByName(const Field& a, const Field& b) { return a.name < b.name; }
static_assert(std::is_sorted(kFields.begin(), kFields.end(), ByName));

}  // namespace field_table

std::span<const Field> FieldTable() { return field_table::kFields; }

const Field* FindField(Api api, std::string_view name) {
  const auto& fields = field_table::kFields;
  auto row =
      std::lower_bound(fields.begin(), fields.end(), Field{name, "", {}}, field_table::ByName);
  for (; row != fields.end() && row->name == name; ++row)
    if (row->read_by.Has(api) || row->ignored_by.Has(api)) return &*row;
  return nullptr;
}

const UnsupportedField* FindUnsupported(Api api, std::string_view name) {
  for (const UnsupportedField& field : field_table::kUnsupported)
    if (field.name == name && field.known_by.Has(api)) return &field;
  return nullptr;
}

}  // namespace pinion

#include "engine/serve/schema_pooling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/serve/fields.h"

namespace pinion {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

ApiResult<GenerationRequest> ReadPooling(Api api, const std::string& text) {
  const Json body = *Json::Parse(text);
  PINION_TRY(CheckFields(api, body, {}));
  return ReadPoolingRequest(api, body);
}

// An error's parameter and sentence; "" if there is none.
std::string PoolingError(Api api, const std::string& body) {
  const auto read = ReadPooling(api, body);
  return read ? "" : read.error().param + ": " + read.error().message;
}

TEST(SchemaPooling, RefusesFieldsThatAnEndpointWouldNotHeed) {
  for (const char* field : {R"("dimensions":2)", R"("encoding_format":"base64")",
                            R"("normalize":false)", R"("task":"classify")"}) {
    const std::string body = StrCat(R"({"input":"x",)", field, "}");
    EXPECT_THAT(PoolingError(Api::kClassify, body), HasSubstr("is not a field of this endpoint"))
        << body;
    EXPECT_EQ(PoolingError(Api::kPooling, body), "") << body;
  }
  EXPECT_THAT(PoolingError(Api::kEmbeddings, R"({"input":"x","task":"token_embed"})"),
              StartsWith("task: "));
}

TEST(SchemaPooling, KeepsTheTaskForTheModelToCheck) {
  EXPECT_EQ(ReadPooling(Api::kPooling, R"({"input":"x","task":"embed"})")->pooling.task, "embed");
  EXPECT_EQ(ReadPooling(Api::kPooling, R"({"input":"x"})")->pooling.task, "");
}

TEST(SchemaPooling, ReadsPairsUnderAnyNameOfEachSide) {
  for (const char* body :
       {R"({"text_1":"a","text_2":["b","c"]})", R"({"queries":"a","documents":["b","c"]})",
        R"({"text_1":"a","documents":["b","c"]})", R"({"data_1":"a","data_2":["b","c"]})",
        R"({"queries":"a","items":["b","c"]})"}) {
    const auto read = ReadPooling(Api::kScore, body);
    ASSERT_TRUE(read) << body << read.error().message;
    EXPECT_THAT(read->pooling.queries, testing::ElementsAre("a"));
    EXPECT_THAT(read->pooling.documents, testing::ElementsAre("b", "c"));
  }
}

TEST(SchemaPooling, TakesFormsOfNumbersThatItHas) {
  const auto read =
      ReadPooling(Api::kPooling, R"({"input":"x","embed_dtype":"fp8_e5m2","endianness":"big",
                                     "encoding_format":"bytes_only"})");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->pooling.form.kind, VectorForm::Kind::kBytesOnly);
  EXPECT_EQ(read->pooling.form.type, ElementType::kE5m2);
  EXPECT_EQ(read->pooling.form.order, "big");
  EXPECT_TRUE(ReadPooling(Api::kEmbeddings, R"({"input":"x"})")->pooling.form.json());
  for (const char* field : {"embed_dtype", "endianness", "encoding_format"})
    for (const char* value : {"\"float64\"", "7", "[]"})
      EXPECT_THAT(
          PoolingError(Api::kEmbeddings, StrCat(R"({"input":"x",")", field, "\":", value, "}")),
          StartsWith(StrCat(field, ": ")));
}

TEST(SchemaPooling, ReadsCoheresBodies) {
  const auto read =
      ReadPooling(Api::kCohereEmbed, R"({"model":"m","texts":["a","b"],"input_type":"search_query",
                             "embedding_types":["ubinary","float","float"],"output_dimension":8})");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_THAT(read->pooling.documents, testing::ElementsAre("a", "b"));
  EXPECT_THAT(read->pooling.types, testing::ElementsAre("ubinary", "float"));
  EXPECT_EQ(read->pooling.input_type, "search_query");
  EXPECT_EQ(read->pooling.dimensions, 8u);
  EXPECT_EQ(read->truncate_to, -1)
      << "texts are cut at their ends unless the client says otherwise";
  EXPECT_THAT(ReadPooling(Api::kCohereEmbed, R"({"texts":["a"]})")->pooling.types,
              testing::ElementsAre("float"));
}

TEST(SchemaPooling, CoheresTruncationCutsOrRefuses) {
  const auto read = [](const char* fields) {
    return *ReadPooling(Api::kCohereEmbed, StrCat(R"({"texts":["a"],)", fields, "}"));
  };
  const auto end = read(R"("truncate":"END","max_tokens":7)");
  EXPECT_EQ(end.truncate_to, 7);
  EXPECT_FALSE(end.pooling.text_tokens);
  for (const char* fields :
       {R"("truncate":"NONE","max_tokens":7)", R"("truncate":"START","max_tokens":7)"}) {
    EXPECT_FALSE(read(fields).truncate_to) << fields;
    EXPECT_EQ(read(fields).pooling.text_tokens, 7u) << fields;
  }
  EXPECT_FALSE(read(R"("truncate":"NONE")").pooling.text_tokens);
}

TEST(SchemaPooling, RefusesBodiesThatAreNotCoheres) {
  const std::pair<const char*, const char*> bad[] = {
      {"texts", R"({})"},
      {"texts", R"({"texts":"a"})"},
      {"texts", R"({"texts":[]})"},
      {"texts", R"({"texts":["a",7]})"},
      {"input_type", R"({"texts":["a"],"input_type":7})"},
      {"embedding_types", R"({"texts":["a"],"embedding_types":["int8"]})"},
      {"embedding_types", R"({"texts":["a"],"embedding_types":"float"})"},
      {"embedding_types", R"({"texts":["a"],"embedding_types":[1]})"},
      {"output_dimension", R"({"texts":["a"],"output_dimension":-8})"},
      {"output_dimension", R"({"texts":["a"],"output_dimension":99999999999})"},
      {"truncate", R"({"texts":["a"],"truncate":"MIDDLE"})"},
      {"max_tokens", R"({"texts":["a"],"max_tokens":0})"},
      {"max_tokens", R"({"texts":["a"],"truncate":"NONE","max_tokens":-1})"},
      {"images", R"({"texts":["a"],"images":["data:"]})"},
      {"inputs", R"({"texts":["a"],"inputs":[{"content":[]}]})"}};
  for (const auto& [field, body] : bad)
    EXPECT_THAT(PoolingError(Api::kCohereEmbed, body), StartsWith(StrCat(field, ": '", field, "'")))
        << body;
}

TEST(SchemaPooling, ReadsSaltsInstructionsAndTheLengthsOfTexts) {
  const auto read =
      ReadPooling(Api::kRerank, R"({"query":"a","documents":["b"],"max_tokens_per_doc":3,
                                    "max_tokens_per_query":2,"instruction":"i","cache_salt":"s",
                                    "padding":"do_not_pad"})");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->pooling.document_tokens, 3u);
  EXPECT_EQ(read->pooling.query_tokens, 2u);
  EXPECT_EQ(read->pooling.instruction, "i");
  EXPECT_EQ(read->cache_salt, "s");
  const std::string pair = R"({"queries":"a","documents":"b",)";
  for (const char* field : {"max_tokens_per_doc", "max_tokens_per_query"}) {
    EXPECT_THAT(PoolingError(Api::kScore, StrCat(pair, '"', field, "\":-1}")),
                StartsWith(StrCat(field, ": ")));
    EXPECT_TRUE(ReadPooling(Api::kScore, StrCat(pair, '"', field, "\":0}"))) << "vLLM's default";
  }
  EXPECT_EQ(ReadPooling(Api::kScore, pair + R"("cache_salt":"s"})")->pooling.instruction, "");
  EXPECT_THAT(PoolingError(Api::kScore, pair + R"("padding":"max_length"})"),
              StartsWith("padding: "));
  EXPECT_THAT(PoolingError(Api::kEmbeddings, R"({"input":"x","cache_salt":""})"),
              StartsWith("cache_salt: "));
}

TEST(SchemaPooling, RefusesSeveralNamesOfOneSide) {
  EXPECT_THAT(PoolingError(Api::kScore, R"({"text_1":"z","queries":"a","documents":"b"})"),
              StartsWith("text_1: 'text_1' and 'queries' are two names"));
  EXPECT_THAT(PoolingError(Api::kScore, R"({"queries":"a","text_2":"z","documents":"b"})"),
              StartsWith("text_2: 'text_2' and 'documents' are two names"));
  EXPECT_THAT(PoolingError(Api::kScore, R"({"queries":"a","items":"z","data_2":"b"})"),
              StartsWith("items: 'items' and 'data_2' are two names"));
}

}  // namespace
}  // namespace pinion

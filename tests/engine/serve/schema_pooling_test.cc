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
  PINION_TRY(CheckFields(api, body, /*ignore=*/false));
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
  for (const char* fields :
       {R"("embed_dtype":"float32")", R"("endianness":"little")", R"("endianness":"native")"})
    EXPECT_EQ(PoolingError(Api::kEmbeddings, StrCat(R"({"input":"x",)", fields, "}")), "");
  EXPECT_THAT(PoolingError(Api::kEmbeddings, R"({"input":"x","embed_dtype":"float16"})"),
              StartsWith("embed_dtype: "));
  EXPECT_THAT(PoolingError(Api::kPooling, R"({"input":"x","endianness":"big"})"),
              StartsWith("endianness: "));
}

TEST(SchemaPooling, ReadsSaltsAndTheLengthOfDocuments) {
  const auto read =
      ReadPooling(Api::kRerank, R"({"query":"a","documents":["b"],"max_tokens_per_doc":3,
                                    "cache_salt":"s"})");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->pooling.document_tokens, 3u);
  EXPECT_EQ(read->cache_salt, "s");
  for (const char* most : {"0", "-5"})
    EXPECT_THAT(PoolingError(Api::kScore, StrCat(R"({"queries":"a","documents":"b",)",
                                                 R"("max_tokens_per_doc":)", most, "}")),
                StartsWith("max_tokens_per_doc: "));
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

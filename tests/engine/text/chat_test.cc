// Chat templates through the helper process: what the reference renders and refuses, and what a
// hostile template may cost.

#include "engine/text/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/text/tokenize_line.h"
#include "tests/engine/text/text_cases.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using testing::HasSubstr;

constexpr const char* kNow = "2025-03-04T09:05:07";  // the reference cases' clock

class Chat : public testing::Test {
 protected:
  void SetUp() override {
    auto renderer = ChatRenderer::Start(kNow);
    ASSERT_TRUE(renderer) << renderer.error().message;
    renderer_ = std::move(*renderer);
  }

  // The rendering, or the error's message.
  std::string Render(const std::string& chat_template, const std::string& messages = "[]",
                     const std::string& kwargs = "{}") {
    ChatRequest request;
    request.chat_template = chat_template;
    request.messages = *Json::Parse(messages);
    request.kwargs = *Json::Parse(kwargs);
    return Text(renderer_->Render(request));
  }

  static std::string Text(const Result<std::string>& result) {
    return result ? *result : result.error().message;
  }

  // One line of the reference cases.
  std::string RenderCase(const Json& c, const std::string& chat_template) {
    ChatRequest request;
    request.chat_template = chat_template;
    request.messages = *c.Find("messages");
    request.tools = *c.Find("tools");
    request.kwargs = *c.Find("kwargs");
    const Json* options = c.Find("hf_options");
    request.continue_final_message = options && options->Find("continue_final_message");
    return Text(renderer_->Render(request));
  }

  static std::string Wanted(const Json& c) {
    if (const Json* rendered = c.Find("rendered")) return rendered->string();
    const Json& error = *c.Find("error");
    return StrCat(error.Find("type")->string(), ": ", error.Find("message")->string());
  }

  std::unique_ptr<ChatRenderer> renderer_;
};

TEST_F(Chat, PassesToolsAndDocumentsAsNoneIfAbsent) {
  EXPECT_EQ(Render("{{ tools is defined }}{{ tools is none }}{{ documents is none }}{{ x }}"),
            "TrueTrueTrue");
}

TEST_F(Chat, KeepsKeyOrderAndCharactersInTojson) {
  EXPECT_EQ(
      Render("{{ messages[0] | tojson }}", R"([{"role": "é<b>", "a": 1.0, "content": null}])"),
      R"({"role": "é<b>", "a": 1.0, "content": null})");
}

TEST_F(Chat, SeesTheTimeItIsGiven) {
  EXPECT_EQ(Render("{{ strftime_now('%d %b %Y %H:%M') }}"), "04 Mar 2025 09:05");
}

TEST_F(Chat, GivesReasoningUnderBothNames) {
  EXPECT_EQ(Render("{{ messages[0].thinking }}{{ messages[1].reasoning_content }}",
                   R"([{"reasoning_content": "a"}, {"reasoning": "b"}])"),
            "ab");
}

TEST_F(Chat, GivesContentsAsTheTemplateWritesThem) {
  const auto fitted = [this](const std::string& chat_template, const std::string& messages) {
    ChatRequest request;
    request.chat_template = chat_template;
    request.messages = *Json::Parse(messages);
    request.fits_contents = true;
    return Text(renderer_->Render(request));
  };
  const std::string in_parts = R"([{"role": "user", "content": [{"type": "text", "text": "a"},)"
                               R"({"type": "text", "text": "b", "lang": "x"}]}])";
  const std::string in_text = R"([{"role": "user", "content": "c"}])";
  const std::string parts =
      "{% for p in m.content %}{% if p.type == 'text' %}[{{ p.text }}{{ p.lang }}]{% endif %}"
      "{% endfor %}";
  const auto each = [](const std::string& body) {
    return "{% for m in messages %}" + body + "{% endfor %}";
  };
  const std::string strings = each("<{{ m.content }}>");
  const std::string both =
      each("{% if m.content is string %}<{{ m.content }}>{% else %}" + parts + "{% endif %}");
  EXPECT_EQ(fitted(strings, in_parts), "<a\nb>");
  EXPECT_EQ(fitted(strings, in_text), "<c>");
  EXPECT_EQ(fitted(both, in_parts), "[a][bx]");
  EXPECT_EQ(fitted(both, in_text), "<c>");
  EXPECT_EQ(fitted(each(parts), in_parts), "[a][bx]");
  EXPECT_EQ(fitted(each(parts), in_text), "[c]");
  EXPECT_EQ(fitted("{{ messages[0].content | tojson }}", in_parts), R"("a\nb")")
      << "written whole, not as parts";
  const std::string picky =  // as TranslateGemma's
      each("{% if not m.content[0].lang %}{{ raise_exception('no lang') }}{% endif %}" + parts);
  EXPECT_EQ(fitted(picky, R"([{"role": "user", "content": [{"type": "text", "text": "b",)"
                          R"("lang": "x"}]}])"),
            "[bx]");
  EXPECT_EQ(fitted(picky, in_text), "TemplateError: no lang");
}

TEST_F(Chat, LosesNoPartToATemplateThatWritesTheFirstAlone) {
  ChatRequest request;
  request.chat_template =  // as Gemma 3's and Llama 4's
      "{% if messages[0].role == 'system' %}<{{ messages[0].content[0].text }}>"
      "{% set messages = messages[1:] %}{% endif %}"
      "{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}[{{ p.text }}]"
      "{% endif %}{% endfor %}{% endfor %}";
  request.messages =
      *Json::Parse(R"([{"role": "system", "content": [{"type": "text", "text": "a"},)"
                   R"({"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]},)"
                   R"({"role": "user", "content": [{"type": "text", "text": "c"},)"
                   R"({"type": "text", "text": "d"}]}])");
  request.fits_contents = true;
  EXPECT_EQ(Text(renderer_->Render(request)), "<a\nb>[c][d]");
  request.chat_template = "{% for m in messages %}[{{ m.content[0]['text'] }}]{% endfor %}";
  EXPECT_EQ(Text(renderer_->Render(request)), "[a\nb][c\nd]");
}

TEST_F(Chat, MovesInstructionsIfTheTemplateWantsThemFirst) {
  ChatRequest request;
  const std::string each = "{% for m in messages %}<{{ m.role[0] }}:{{ m.content }}>{% endfor %}";
  const std::string strict =
      "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
      "{{ raise_exception('the system comes first') }}{% endif %}{% endfor %}" +
      each;
  request.messages =
      *Json::Parse(R"([{"role":"system","content":"a"},{"role":"user","content":"b"},)"
                   R"({"role":"system","content":"c"},{"role":"user","content":"d"}])");
  const auto rendered = [&](const std::string& chat_template) {
    request.chat_template = chat_template;
    return Text(renderer_->Render(request));
  };
  EXPECT_EQ(rendered(strict), "TemplateError: the system comes first") << "as its client sent them";
  const std::string deaf =
      "{% for m in messages %}{% if loop.first or m.role != 'system' %}<{{ m.content }}>{% endif %}"
      "{% endfor %}";
  request.moves_instructions = true;
  EXPECT_EQ(rendered(each), "<s:a><u:b><s:c><u:d>") << "prompts keep their beginning";
  EXPECT_EQ(rendered(strict), "<s:a\nc><u:b\nd>");
  EXPECT_EQ(rendered(deaf), "<a\nc><b\nd>");
}

TEST_F(Chat, LeavesNoNeighboursOfOneRoleBehindMovedInstructions) {
  ChatRequest request;
  request.chat_template =
      "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
      "{{ raise_exception('the system comes first') }}{% endif %}"
      "<{{ m.role[0] }}:{{ m.content }}{{ m.thinking }}{% for c in m.tool_calls %}!{{ c }}"
      "{% endfor %}>{% endfor %}";
  request.moves_instructions = true;
  const auto rendered = [&](const std::string& answers) {
    request.messages = *Json::Parse(StrCat(R"([{"role":"user","content":"a"},)", answers, "]"));
    return Text(renderer_->Render(request));
  };
  EXPECT_EQ(rendered(R"({"role":"assistant","content":"b","reasoning_content":"x"},)"
                     R"({"role":"system","content":"c"},)"
                     R"({"role":"assistant","content":"d","reasoning_content":"y"})"),
            "<s:c><u:a><a:b\ndx\ny>");
  EXPECT_EQ(rendered(R"({"role":"assistant","content":"b"},{"role":"system","content":"c"},)"
                     R"({"role":"assistant","content":"","tool_calls":["f"]})"),
            "<s:c><u:a><a:b!f>");
  EXPECT_EQ(rendered(R"({"role":"assistant","content":"b","tool_calls":["f"]},)"
                     R"({"role":"system","content":"c"},{"role":"assistant","content":"d"})"),
            "<s:c><u:a><a:b!f><a:d>")
      << "a call stays behind what was said before it";
}

TEST_F(Chat, GoesOnWithTheLastPart) {
  ChatRequest request;
  request.chat_template =
      "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]"
      "{% endfor %}!{% endfor %}";
  request.messages = *Json::Parse(R"([{"content": [{"type": "text", "text": "a"},)"
                                  R"({"type": "text", "text": "b"}]}])");
  request.continue_final_message = true;
  EXPECT_EQ(Text(renderer_->Render(request)), "[a][b");
}

TEST_F(Chat, ReportsTheErrorThatATemplateRaises) {
  EXPECT_EQ(Render("{{ raise_exception('no system role') }}"), "TemplateError: no system role");
  EXPECT_EQ(Render("{{ messages.append(1) }}"),
            "SecurityError: access to attribute 'append' of 'list' object is unsafe.");
}

TEST_F(Chat, CutsAfterTheFinalMessage) {
  ChatRequest request;
  request.chat_template = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}";
  request.messages = *Json::Parse(R"([{"content": "q"}, {"content": "Sure, "}])");
  request.continue_final_message = true;
  EXPECT_EQ(Text(renderer_->Render(request)), "<q><Sure,");
}

TEST_F(Chat, StopsATemplateThatNeverEndsAndGoesOn) {
  const int64_t start = NowNs();
  EXPECT_THAT(
      Render("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"),
      HasSubstr("stopped"));
  EXPECT_LT(SecondsSince(start), 20);  // 2 s, and what a busy machine adds
  EXPECT_EQ(Render("{{ 1 + 1 }}"), "2");
}

TEST_F(Chat, SurvivesATemplateThatWantsAllMemory) {
  EXPECT_THAT(Render("{{ 'x' * 100000000000 }}"), HasSubstr("MemoryError"));
  EXPECT_THAT(Render("{% set l = 'x' * 1000000 %}{% for i in range(90000) %}{{ l }}{% endfor %}"),
              testing::AnyOf(HasSubstr("MemoryError"), HasSubstr("stopped"), HasSubstr("down")));
  EXPECT_EQ(Render("{{ 1 + 1 }}"), "2");
}

TEST_F(Chat, SurvivesEndlessRecursion) {
  EXPECT_THAT(Render("{% macro r() %}{{ r() }}{% endmacro %}{{ r() }}"),
              HasSubstr("RecursionError"));
}

TEST_F(Chat, StartsAgainWhenTheHelperIsGone) {
  // A helper dies with the thread that started it.
  std::thread([&] { renderer_ = std::move(*ChatRenderer::Start(kNow)); }).join();
  EXPECT_EQ(Render("{{ 1 + 1 }}"), "2");
}

TEST_F(Chat, RendersTheGoldenChats) {
  for (const char* model :
       {"llama", "llama2", "qwen2", "tiny-trained", "mistral", "qwen3", "phi3", "phi3-longrope",
        "mixtral", "qwen3moe", "gptoss", "deepseekv2", "deepseekv3"}) {
    const std::string folder = StrCat(tests::TestData(), "/models/", model);
    const auto tokenizer = LoadTokenizer(folder);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    LineTokenizer lines(**tokenizer, {}, kNow);
    const auto golden = Json::ParseFile(folder + "/golden.json");
    ASSERT_TRUE(golden);
    ASSERT_FALSE(golden->Find("chats")->array().empty());
    for (const Json& chat : golden->Find("chats")->array()) {
      const auto answer = lines.Answer(Json::Object{{"messages", *chat.Find("messages")}});
      ASSERT_TRUE(answer) << answer.error().message;
      if (chat.Find("error")) {
        EXPECT_TRUE(answer->Find("error"));
        continue;
      }
      ASSERT_TRUE(answer->Find("rendered")) << answer->Dump();
      EXPECT_EQ(answer->Find("rendered")->string(), chat.Find("rendered")->string());
      EXPECT_EQ(*answer->Find("ids"), *chat.Find("input_ids"));
    }
  }
}

TEST_F(Chat, RendersAndRefusesLikeTheReference) {
  const std::string folder = FixturesFolder() + "/text/chat";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no reference data in " << folder;
  const std::vector<Json> cases = ReadJsonLines(folder + "/cases.jsonl");
  EXPECT_GT(cases.size(), 5000u);
  for (const Json& c : cases) {
    const std::string& name = c.Find("template")->string();
    const auto text = ReadFile(StrCat(folder, "/templates/", name));
    ASSERT_TRUE(text) << text.error().message;
    ASSERT_EQ(RenderCase(c, *text), Wanted(c)) << name << ", " << c.Find("case")->Dump();
  }
}

TEST_F(Chat, OffersTheReferencesEnvironment) {
  const std::string folder = FixturesFolder() + "/text/chat";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no reference data in " << folder;
  const std::vector<Json> probes = ReadJsonLines(folder + "/env_probes.jsonl");
  EXPECT_GT(probes.size(), 70u);
  for (const Json& probe : probes)
    EXPECT_EQ(RenderCase(probe, probe.Find("source")->string()), Wanted(probe))
        << probe.Find("source")->string();
}

}  // namespace
}  // namespace pinion

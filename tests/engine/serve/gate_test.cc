#include "engine/serve/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinion {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

HttpHead Head(HttpFields fields, std::string method = "POST",
              std::string path = "/v1/completions") {
  HttpHead head;
  head.method = std::move(method);
  head.path = std::move(path);
  head.address = "10.0.0.9";
  for (auto& [name, value] : fields) head.headers.Add(name, value);
  return head;
}

HttpHead WithHost(const std::string& host) { return Head({{"Host", host}}); }

int RefusedWith(const HttpVerdict& verdict) {
  return verdict.refusal ? verdict.refusal->status : 0;
}

Gate MakeGate(HttpRules rules = {}) {
  return Gate(std::move(rules), "192.168.1.5", {"thishost", "10.1.2.3", "fe80::1"});
}

TEST(Gate, RefusesForeignHosts) {
  const Gate gate = MakeGate();
  for (const char* own :
       {"localhost", "localhost:8000", "LocalHost:1", "pinion.localhost", "localhost.:8000",
        "127.0.0.1:8000", "[::1]:8000", "[0:0:0::1]", "192.168.1.5:8000", "thishost:8000",
        "ThisHost", "10.1.2.3", "[FE80::1]:8000"})
    EXPECT_EQ(RefusedWith(gate.Check(WithHost(own))), 0) << own;
  for (const char* foreign :
       {"evil.com", "evil.com:8000", "localhost.evil.com", "evillocalhost", "127.0.0.1.evil.com",
        "10.1.2.4", "[::2]:8000", "", ":8000", "[", "[]", "thishost@evil.com", "a:b:c"})
    EXPECT_EQ(RefusedWith(gate.Check(WithHost(foreign))), 403) << foreign;
  EXPECT_THAT(gate.Check(WithHost("evil.com:80")).refusal->body,
              HasSubstr("'evil.com:80' is not a name of this server; start it with "
                        "--allowed-hosts evil.com if it is"));
}

TEST(Gate, WantsOneHostUnlessTheClientIsOld) {
  const Gate gate = MakeGate();
  HttpHead none = Head({});
  EXPECT_EQ(RefusedWith(gate.Check(none)), 400);
  none.http11 = false;
  EXPECT_EQ(RefusedWith(gate.Check(none)), 0);
  EXPECT_EQ(RefusedWith(gate.Check(Head({{"Host", "localhost"}, {"host", "localhost"}}))), 400);
}

// RFC 9112, 3.2.2.
TEST(Gate, BelievesTheTargetRatherThanHost) {
  const auto check = [](const std::string& target, const std::string& host) {
    HttpHead head = WithHost(host);
    head.host = target;
    return RefusedWith(MakeGate().Check(head));
  };
  EXPECT_EQ(check("localhost:8000", "localhost:8000"), 0);
  EXPECT_EQ(check("evil.com", "localhost"), 403);
  EXPECT_EQ(check("", "localhost"), 403);
  EXPECT_EQ(check("localhost", "proxy.example.org"), 0);
  HttpHead old = Head({});
  old.http11 = false;
  old.host = "evil.com";
  EXPECT_EQ(RefusedWith(MakeGate().Check(old)), 403);
}

TEST(Gate, TakesANetworkOfIpv6ForOneClient) {
  const auto client = [](const std::string& address) {
    HttpHead head = WithHost("localhost");
    head.address = address;
    return MakeGate().Check(head).client;
  };
  EXPECT_EQ(client("10.0.0.9"), "10.0.0.9");
  EXPECT_EQ(client("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  EXPECT_EQ(client("2001:db8:1:2:ffff::1"), "2001:db8:1:2::/64");
  EXPECT_EQ(client("2001:db8:1:3::1"), "2001:db8:1:3::/64");
  EXPECT_EQ(client("::ffff:10.0.0.9"), "10.0.0.9");
  EXPECT_EQ(client("::1"), "::1");
  EXPECT_EQ(client("fe80::1"), "fe80::1");
  EXPECT_EQ(client("fe80::1%eth0"), "fe80::1%eth0");
}

TEST(Gate, KnowsTheEndpointsThatTellOfTheServer) {
  const auto tells = [](const std::string& path) {
    return MakeGate().Check(Head({{"Host", "localhost"}}, "GET", path)).tells_of_server;
  };
  for (const char* path : {"/health", "/v1/health", "/ping", "/metrics"})
    EXPECT_TRUE(tells(path)) << path;
  for (const char* path : {"/v1/models", "/server_info", "/tokenize"})
    EXPECT_FALSE(tells(path)) << path;
}

TEST(Gate, TakesTheHostsThatItIsTold) {
  HttpRules rules;
  rules.allowed_hosts = {"Models.Example.org"};
  const Gate gate = MakeGate(rules);
  EXPECT_EQ(RefusedWith(gate.Check(WithHost("models.example.org:443"))), 0);
  EXPECT_EQ(RefusedWith(gate.Check(WithHost("example.org"))), 403);
  rules.allowed_hosts = {"*"};
  EXPECT_EQ(RefusedWith(MakeGate(rules).Check(WithHost("anything"))), 0);
}

TEST(Gate, RefusesOriginsUnlessAllowed) {
  HttpRules rules;
  const auto check = [&](const std::string& origin) {
    return MakeGate(rules).Check(Head({{"Host", "localhost"}, {"Origin", origin}}));
  };
  // A page of another port of this machine is another page.
  for (const char* origin : {"https://evil.com", "null", "http://localhost:3000", ""})
    EXPECT_EQ(RefusedWith(check(origin)), 403) << origin;
  EXPECT_THAT(check("https://evil.com").refusal->body,
              HasSubstr("--allowed-origins https://evil.com"));
  rules.allowed_origins = {"https://good.com"};
  EXPECT_EQ(RefusedWith(check("https://good.com.evil.com")), 403);
  const HttpVerdict good = check("https://good.com");
  EXPECT_EQ(RefusedWith(good), 0);
  EXPECT_THAT(good.headers, Contains(Pair("Access-Control-Allow-Origin", "https://good.com")));
  EXPECT_THAT(good.headers, Contains(Pair("Vary", "Origin")));
  rules.allowed_origins = {"*"};
  EXPECT_THAT(check("null").headers, Contains(Pair("Access-Control-Allow-Origin", "*")));
  rules.allow_credentials = true;  // which browsers do not combine with "*"
  EXPECT_THAT(check("https://a.com").headers,
              Contains(Pair("Access-Control-Allow-Origin", "https://a.com")));
}

TEST(Gate, AnswersPreflights) {
  HttpRules rules;
  rules.allowed_origins = {"https://good.com"};
  rules.api_keys = {"secret"};  // which a browser does not send with the question
  const auto ask = [&](const std::string& origin, const std::string& method) {
    return MakeGate(rules).Check(Head({{"Host", "localhost"},
                                       {"Origin", origin},
                                       {"Access-Control-Request-Method", method},
                                       {"Access-Control-Request-Headers", "X-One, Content-Type"}},
                                      "OPTIONS"));
  };
  const HttpVerdict verdict = ask("https://good.com", "POST");
  ASSERT_EQ(RefusedWith(verdict), 204);
  EXPECT_THAT(verdict.refusal->headers, Contains(Pair("Access-Control-Allow-Methods", "POST")));
  EXPECT_THAT(verdict.refusal->headers,
              Contains(Pair("Access-Control-Allow-Headers", "X-One, Content-Type")));
  EXPECT_EQ(RefusedWith(ask("https://evil.com", "POST")), 403);
  rules.allowed_methods = {"GET"};
  EXPECT_EQ(RefusedWith(ask("https://good.com", "POST")), 403);
  EXPECT_EQ(RefusedWith(ask("https://good.com", "GET")), 204);
  rules.allowed_headers = {"content-type"};
  EXPECT_EQ(RefusedWith(ask("https://good.com", "GET")), 403);
  rules.allowed_headers = {"content-type", "x-one"};
  EXPECT_EQ(RefusedWith(ask("https://good.com", "GET")), 204);
}

TEST(Gate, ComparesEveryKeyInFull) {
  HttpRules rules;
  rules.api_keys = {"alpha", "beta-longer", "c"};
  const Gate gate = MakeGate(rules);
  const auto check = [&](const std::string& authorization) {
    return gate.Check(Head({{"Host", "localhost"}, {"Authorization", authorization}}));
  };
  for (size_t i = 0; i < rules.api_keys.size(); ++i) {
    const std::string& key = rules.api_keys[i];
    const HttpVerdict verdict = check("Bearer " + key);
    EXPECT_EQ(RefusedWith(verdict), 0) << key;
    EXPECT_EQ(verdict.client, "key " + std::to_string(i + 1));
    for (size_t at = 0; at < key.size(); ++at) {
      std::string wrong = key;
      wrong[at] ^= 1;
      EXPECT_EQ(RefusedWith(check("Bearer " + wrong)), 401) << wrong;
    }
    EXPECT_EQ(RefusedWith(check("Bearer " + key + "x")), 401);
    EXPECT_EQ(RefusedWith(check("Bearer " + key + std::string(1, '\0'))), 401);
    EXPECT_EQ(RefusedWith(check("Bearer " + key.substr(0, key.size() - 1))), 401);
    EXPECT_EQ(RefusedWith(check("Basic " + key)), 401);
    EXPECT_EQ(RefusedWith(check(key)), 401);
  }
  EXPECT_EQ(RefusedWith(check("bearer  alpha ")), 0);
  const HttpVerdict none = gate.Check(WithHost("localhost"));
  ASSERT_EQ(RefusedWith(none), 401);
  EXPECT_EQ(none.client, "10.0.0.9");
  EXPECT_THAT(none.refusal->headers, Contains(Pair("WWW-Authenticate", "Bearer")));
  EXPECT_THAT(none.refusal->body, Not(HasSubstr("alpha")));
}

TEST(Gate, TakesAnthropicsHeaderForKeys) {
  HttpRules rules;
  rules.api_keys = {"alpha", "beta"};
  const Gate gate = MakeGate(rules);
  const auto check = [&](HttpFields fields) {
    fields.emplace_back("Host", "localhost");
    HttpHead head = Head(fields);
    head.path = "/v1/messages";
    return gate.Check(head);
  };
  EXPECT_EQ(check({{"x-api-key", "beta"}}).client, "key 2");
  const HttpVerdict wrong = check({{"x-api-key", "gamma"}});
  ASSERT_EQ(RefusedWith(wrong), 401);
  EXPECT_THAT(wrong.refusal->body, HasSubstr("\"type\":\"authentication_error\""));
  EXPECT_EQ(RefusedWith(check({{"x-api-key", ""}})), 401);
  EXPECT_EQ(RefusedWith(check({{"x-api-key", "beta"}, {"Authorization", "Bearer gamma"}})), 401)
      << "a bearer token counts instead";
}

TEST(Gate, LeavesHealthOpen) {
  HttpRules rules;
  rules.api_keys = {"secret"};
  const Gate gate = MakeGate(rules);
  const auto check = [&](const char* path) {
    return RefusedWith(gate.Check(Head({{"Host", "localhost"}}, "GET", path)));
  };
  EXPECT_EQ(check("/health"), 0);
  EXPECT_EQ(check("/v1/health"), 0);
  EXPECT_EQ(check("/ping"), 0);
  for (const char* path : {"/metrics", "/v1/models", "/server_info", "/health/", "//health", "//"})
    EXPECT_EQ(check(path), 401) << path;
}

TEST(Gate, LeavesThePageOpenIfThereIsOne) {
  HttpRules rules;
  rules.api_keys = {"secret"};
  const auto check = [&](const char* path) {
    return RefusedWith(MakeGate(rules).Check(Head({{"Host", "localhost"}}, "GET", path)));
  };
  EXPECT_EQ(check("/"), 0);
  rules.page = false;
  EXPECT_EQ(check("/"), 401);
}

// The browser says Origin with every POST, also to the page's own server.
TEST(Gate, LetsItsOwnPageUseTheServer) {
  HttpRules rules;
  const auto check = [&](const std::string& host, const std::string& origin) {
    return MakeGate(rules).Check(Head({{"Host", host}, {"Origin", origin}}));
  };
  EXPECT_EQ(RefusedWith(check("localhost:8000", "http://localhost:8000")), 0);
  EXPECT_EQ(RefusedWith(check("ThisHost:8000", "http://thishost:8000")), 0);
  EXPECT_EQ(RefusedWith(check("[::1]:8000", "http://[::1]:8000")), 0);
  EXPECT_EQ(RefusedWith(check("localhost", "https://localhost")), 0);  // a proxy ends TLS
  EXPECT_THAT(check("localhost", "http://localhost").headers,
              Not(Contains(Pair("Access-Control-Allow-Origin", testing::_))));
  for (const char* other : {"http://localhost:3000", "http://localhost", "http://127.0.0.1:8000",
                            "ftp://localhost:8000", "http://localhost:8000.evil.com",
                            "http://localhost:8000/", "localhost:8000", ""})
    EXPECT_EQ(RefusedWith(check("localhost:8000", other)), 403) << other;
  rules.ssl_certfile = "certificate";  // whoever controls the plain port is not us
  EXPECT_EQ(RefusedWith(check("localhost", "http://localhost")), 403);
  EXPECT_EQ(RefusedWith(check("localhost", "https://localhost")), 0);
  rules.page = false;
  EXPECT_EQ(RefusedWith(check("localhost", "https://localhost")), 403);
}

// DNS of a foreign page may point its own name here: '*' lets the name pass, not the page.
TEST(Gate, TakesNoForeignNameForItsOwnPage) {
  HttpRules rules;
  rules.allowed_hosts = {"*"};
  const auto check = [&](const char* host, const char* origin) {
    return RefusedWith(MakeGate(rules).Check(Head({{"Host", host}, {"Origin", origin}})));
  };
  EXPECT_EQ(check("evil.com:8000", "http://evil.com:8000"), 403);
  EXPECT_EQ(check("localhost:8000", "http://localhost:8000"), 0);
  rules.allowed_hosts = {"models.example.org"};
  EXPECT_EQ(check("models.example.org", "https://models.example.org"), 0);
}

TEST(Gate, PassesRequestIdsThrough) {
  const HttpVerdict verdict =
      MakeGate().Check(Head({{"Host", "localhost"}, {"x-request-id", "order-66/a=b"}}));
  EXPECT_EQ(verdict.id, "order-66/a=b");
  EXPECT_THAT(verdict.headers, Contains(Pair("X-Request-Id", "order-66/a=b")));
}

TEST(Gate, ReplacesHostileIds) {
  const auto id = [](const std::string& given) {
    return MakeGate().Check(Head({{"Host", "localhost"}, {"X-Request-Id", given}})).id;
  };
  EXPECT_EQ(id(std::string(128, 'x')), std::string(128, 'x'));
  for (const std::string& hostile :
       {std::string(129, 'x'), std::string("a b"), std::string("\x1b[31m"), std::string("\xc3\xa9"),
        std::string("")}) {
    const std::string made = id(hostile);
    EXPECT_EQ(made.size(), 32u) << hostile;
    EXPECT_EQ(made.find_first_not_of("0123456789abcdef"), std::string::npos) << made;
    EXPECT_NE(made, id(hostile));
  }
}

}  // namespace
}  // namespace pinion

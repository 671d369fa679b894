#include "tests/engine/serve/tls_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>

namespace pinion {

void WriteCertificate(const std::string& certfile, const std::string& keyfile, int begin_seconds,
                      int end_seconds) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), begin_seconds);
  X509_gmtime_adj(X509_getm_notAfter(certificate), end_seconds);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  EXPECT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
  FILE* file = std::fopen(certfile.c_str(), "w");
  EXPECT_EQ(PEM_write_X509(file, certificate), 1);
  std::fclose(file);
  file = std::fopen(keyfile.c_str(), "w");
  EXPECT_EQ(PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr), 1);
  std::fclose(file);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

struct TlsClient::State {
  int fd = -1;
  SSL_CTX* context = nullptr;
  SSL* tls = nullptr;
  bool connected = false;
};

TlsClient::TlsClient(uint16_t port) : state_(std::make_unique<State>()) {
  state_->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{10, 0};
  setsockopt(state_->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(state_->fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  state_->context = SSL_CTX_new(TLS_client_method());
  state_->tls = SSL_new(state_->context);
  SSL_set_fd(state_->tls, state_->fd);
  state_->connected = SSL_connect(state_->tls) == 1;
}

TlsClient::~TlsClient() {
  SSL_free(state_->tls);
  SSL_CTX_free(state_->context);
  close(state_->fd);
}

bool TlsClient::connected() const { return state_->connected; }

void TlsClient::Send(std::string_view bytes) {
  EXPECT_EQ(SSL_write(state_->tls, bytes.data(), static_cast<int>(bytes.size())),
            static_cast<int>(bytes.size()));
}

std::string TlsClient::ReadUntil(std::string_view text) {
  std::string got;
  char chunk[16 << 10];
  while (text.empty() || got.find(text) == std::string::npos) {
    const int count = SSL_read(state_->tls, chunk, sizeof chunk);
    if (count <= 0) break;
    got.append(chunk, static_cast<size_t>(count));
  }
  return got;
}

}  // namespace pinion

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace pinion {

// Writes a new key and a certificate for localhost, signed by itself, as PEM. Both times count from
// now.
void WriteCertificate(const std::string& certfile, const std::string& keyfile,
                      int begin_seconds = -60, int end_seconds = 3600);

// RawClient over TLS. Trusts any certificate.
class TlsClient {
 public:
  explicit TlsClient(uint16_t port);
  ~TlsClient();
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  bool connected() const;  // the handshake has succeeded
  void Send(std::string_view bytes);
  // Reads until `text` has come or the server closes; "" reads all.
  std::string ReadUntil(std::string_view text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pinion

#include "harness/cli/access_flags.h"

#include <cstdlib>

namespace pinion::harness {

void AccessFlags::AddTo(CLI::App& command) {
  command.add_option("--api-key", api_key_,
                     "key to send as a bearer token (default: OPENAI_API_KEY of the environment, "
                     "which other users of the machine cannot see)");
  command
      .add_option("--ca-file", ca_file_,
                  "HTTPS: PEM file of the authorities that may have signed the server's "
                  "certificate (default: the system's)")
      ->check(CLI::ExistingFile);
  command.add_flag("--insecure", insecure_, "HTTPS: trust any certificate");
}

HttpAccess AccessFlags::Resolve() const {
  const char* key = std::getenv("OPENAI_API_KEY");
  HttpAccess access;
  access.api_key = api_key_.value_or(key ? key : "");
  access.ca_file = ca_file_;
  access.verify = !insecure_;
  return access;
}

}  // namespace pinion::harness

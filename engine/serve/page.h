#pragma once

#include "engine/serve/http.h"

namespace pinion {

// The page for people at `/`: a chat with the model, and how the server is. One document with its
// style and script in it (engine/serve/page/), built into the binary. It holds nothing of this
// server and no secret; the script asks the API for all that it shows. The answer's policy keeps it
// from running or fetching anything else.
void SendPage(HttpReply& reply);

}  // namespace pinion

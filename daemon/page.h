// page.html, as it is served.
#pragma once

namespace sluice::daemon {

extern const char kPage[];

}  // namespace sluice::daemon

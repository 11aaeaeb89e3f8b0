// The report as one page that needs no network: tables, latency distributions and a timeline as inline SVG.
#pragma once

#include <string>

#include "report.h"

namespace sluice::bench {

std::string to_html(const Report& report);

}  // namespace sluice::bench

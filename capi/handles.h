// What the opaque types of sluice.h hold.
#pragma once

#include <memory>

#include "sluice.h"
#include "sluice/engine.h"

struct sluice_model {
  std::shared_ptr<sluice::engine::Model> model;
};

struct sluice_session {
  std::unique_ptr<sluice::engine::Session> session;
};

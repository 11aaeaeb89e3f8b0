#include "operators/elementwise_steps.h"

#include <cmath>
#include <cstdlib>
#include <sstream>

namespace sluice::engine {
namespace {

struct Named {
  const char* name;
  StepOp op;
};
constexpr Named kNamed[] = {
    {"add", StepOp::kAdd},    {"sub", StepOp::kSub}, {"mul", StepOp::kMul},   {"div", StepOp::kDiv},
    {"max", StepOp::kMax},    {"min", StepOp::kMin}, {"pow", StepOp::kPow},   {"abs", StepOp::kAbs},
    {"ceil", StepOp::kCeil},  {"erf", StepOp::kErf}, {"exp", StepOp::kExp},   {"floor", StepOp::kFloor},
    {"log", StepOp::kLog},    {"neg", StepOp::kNeg}, {"sqrt", StepOp::kSqrt}, {"reciprocal", StepOp::kReciprocal},
    {"round", StepOp::kRound}};

std::size_t numbers_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kLeakyRelu:
    case ActivationKind::kElu:
      return 1;
    case ActivationKind::kClip:
    case ActivationKind::kHardSigmoid:
    case ActivationKind::kHardSwish:
      return 2;
    default:
      return 0;
  }
}

bool parse_number(const std::string& text, float& value) {
  char* end = nullptr;
  value = std::strtof(text.c_str(), &end);
  return !text.empty() && end == text.c_str() + text.size();
}

bool parse_operand(const std::string& text, std::size_t inputs, std::size_t steps, StepOperand& operand) {
  const bool reference = text.size() > 1 && (text[0] == 'i' || text[0] == 's') && text[1] >= '0' && text[1] <= '9';
  if (!reference) {
    operand.kind = StepOperand::Kind::kNumber;
    return parse_number(text, operand.number);
  }
  char* end = nullptr;
  operand.kind = text[0] == 'i' ? StepOperand::Kind::kInput : StepOperand::Kind::kStep;
  operand.index = std::strtoul(text.c_str() + 1, &end, 10);
  return *end == '\0' && operand.index < (text[0] == 'i' ? inputs : steps);
}

bool parse_step(const std::string& text, std::size_t inputs, std::size_t steps, Step& step) {
  std::istringstream words(text);
  std::vector<std::string> word;
  for (std::string next; words >> next;) {
    word.push_back(next);
  }
  if (word.size() < 2 || !parse_operand(word[1], inputs, steps, step.a)) {
    return false;
  }
  for (const Named& named : kNamed) {
    if (word[0] == named.name) {
      step.op = named.op;
      return step.binary() ? word.size() == 3 && parse_operand(word[2], inputs, steps, step.b) : word.size() == 2;
    }
  }
  const auto kind = activation_named(word[0]);
  if (!kind || word.size() != 2 + numbers_of(*kind)) {
    return false;
  }
  step.op = StepOp::kActivation;
  step.activation.kind = *kind;
  return (word.size() < 3 || parse_number(word[2], step.activation.alpha)) &&
         (word.size() < 4 || parse_number(word[3], step.activation.beta));
}

}  // namespace

Result<std::vector<Step>> parse_steps(const std::vector<std::string>& texts, std::size_t inputs) {
  std::vector<Step> steps;
  if (texts.empty() || texts.size() > kMostSteps) {
    return Status::error(Code::kInvalidArgument, "%zu steps; 1 to %zu are supported", texts.size(), kMostSteps);
  }
  for (const std::string& text : texts) {
    Step step;
    if (!parse_step(text, inputs, steps.size(), step)) {
      return Status::error(Code::kInvalidArgument, "step %zu, '%.60s', is not one", steps.size(), text.c_str());
    }
    steps.push_back(step);
  }
  return steps;
}

float compute_step(const Step& step, float a, float b) {
  switch (step.op) {
    case StepOp::kAdd:
      return a + b;
    case StepOp::kSub:
      return a - b;
    case StepOp::kMul:
      return a * b;
    case StepOp::kDiv:
      return a / b;
    case StepOp::kMax:
      return a > b || a != a ? a : b;
    case StepOp::kMin:
      return a < b || a != a ? a : b;
    case StepOp::kPow:
      return std::pow(a, b);
    case StepOp::kAbs:
      return std::fabs(a);
    case StepOp::kCeil:
      return std::ceil(a);
    case StepOp::kErf:
      return std::erf(a);
    case StepOp::kExp:
      return std::exp(a);
    case StepOp::kFloor:
      return std::floor(a);
    case StepOp::kLog:
      return std::log(a);
    case StepOp::kNeg:
      return -a;
    case StepOp::kReciprocal:
      return 1 / a;
    case StepOp::kRound:
      return std::nearbyint(a);
    case StepOp::kSqrt:
      return std::sqrt(a);
    case StepOp::kActivation:
      return activate(step.activation, a);
  }
  return a;
}

}  // namespace sluice::engine

// Values of the daemon's status as words; what is missing, or of another type, is kUnknown. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sluice::cli::shown {

inline constexpr char kUnknown[] = "-";

// Null, or an empty array, where `object` has none.
const nlohmann::json& at(const nlohmann::json& object, const char* key);
const nlohmann::json& list_at(const nlohmann::json& object, const char* key);

std::string text(const nlohmann::json& value);
std::string whole(const nlohmann::json& value);
std::string count(const nlohmann::json& value);
std::string bytes(const nlohmann::json& value);
std::string duration(const nlohmann::json& micros);
std::string percent(const nlohmann::json& ratio);

std::string state(const nlohmann::json& job);
std::string gpus(const nlohmann::json& status, const nlohmann::json& job);  // "0,1"
std::string remarks(const nlohmann::json& device);                          // what else there is to say of a card

}  // namespace sluice::cli::shown

#include "mutants/escapes.h"

namespace tessera::mutants {

const std::vector<Escape>& known_escapes() {
  static const std::vector<Escape> all = {
      {"add an Identity", "what is computed behind it is not known before the run", 1910},
      {"bypass a communication", "metadata are believed, and ranks are not compared", 1011},
      {"bypass a communication on one rank", "metadata are believed, and ranks are not compared", 1733},
      {"change a reduction", "metadata are believed, and ranks are not compared", 1194},
      {"change an attribute", "metadata are believed, and ranks are not compared", 517},
      {"change an index", "metadata are believed, and ranks are not compared", 527},
      {"change an initializer", "metadata are believed, and ranks are not compared", 1141},
      {"change an operator", "metadata are believed, and ranks are not compared", 1798},
      {"change the kind of a communication", "metadata are believed, and ranks are not compared", 737},
      {"communicate twice", "metadata are believed, and ranks are not compared", 141},
      {"drop a communication", "metadata are believed, and ranks are not compared", 2315},
      {"drop a node", "metadata are believed, and ranks are not compared", 2088},
      {"exchange branches", "metadata are believed, and ranks are not compared", 516},
      {"exchange operands", "metadata are believed, and ranks are not compared", 2000},
      {"exchange results", "metadata are believed, and ranks are not compared", 1217},
      {"insert a collective", "metadata are believed, and ranks are not compared", 229},
      {"insert a communication like another", "metadata are believed, and ranks are not compared", 392},
      {"insert a node", "metadata are believed, and ranks are not compared", 163},
      {"merge equal constants", "the first token is one of them", 713},
      {"negate a condition", "metadata are believed, and ranks are not compared", 325},
      {"none", "a slice of a slice by uneven digits of an axis, and peers of Scatter, are not read back", 240},
      {"read another input", "metadata are believed, and ranks are not compared", 1346},
      {"redirect an operand", "metadata are believed, and ranks are not compared", 716},
      {"take metadata away", "layouts are taken from metadata", 107},
      {"take the index along another axis", "metadata are believed, and ranks are not compared", 691},
      {"take types and metadata away", "layouts are taken from metadata, local shapes from value_info", 35},
  };
  return all;
}

}  // namespace tessera::mutants

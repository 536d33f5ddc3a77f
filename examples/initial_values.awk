# Gives initial values to the initializers of a model in ONNX's text syntax that have none: normal numbers with standard
# deviation 0.02 to matrices, ones to vectors named *norm.weight; other vectors stay zeros. Deterministic.
#   awk -f initial_values.awk model.onnxtxt > initialized.onnxtxt
function uniform() {  # Park and Miller, Random number generators: good ones are hard to find (1988)
  seed = (seed * 16807) % 2147483647
  return seed / 2147483647
}
function normal() { return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()) }
BEGIN { seed = 20261 }
/^ *> *\{/ { body = 1 }
body || !/^ *float\[/ || /=/ { print; next }
{
  rest = $0
  while (match(rest, /float\[[0-9, ]+\] "[^"]+"/)) {
    declared = substr(rest, RSTART, RLENGTH)
    rest = substr(rest, RSTART + RLENGTH)
    printf "  %s", declared
    extents = declared
    gsub(/^float\[|\].*$/, "", extents)
    dimensions = split(extents, extent, /, */)
    if (dimensions > 1 || declared ~ /norm\.weight"$/) {
      count = 1
      for (i = 1; i <= dimensions; ++i) count *= extent[i]
      printf " = {"
      for (i = 0; i < count; ++i) printf "%s%.6g", (i ? "," : ""), (dimensions == 1 ? 1 : 0.02 * normal())
      printf "}"
    }
    print ","
  }
}
